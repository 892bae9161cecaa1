module github.com/fairlead-dev/fairlead/e2e/bench-tunnel/mux

go 1.26.2

require (
	github.com/fairlead-dev/fairlead v0.0.0
	github.com/hashicorp/yamux v0.1.2
	github.com/quic-go/quic-go v0.54.0
	golang.org/x/net v0.55.0
)

require (
	go.uber.org/mock v0.5.0 // indirect
	golang.org/x/crypto v0.51.0 // indirect
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.37.0 // indirect
	golang.org/x/tools v0.44.0 // indirect
)

replace github.com/fairlead-dev/fairlead => ../../..
