module github.com/fairlead-dev/fairlead/deploy/tools/mdlinks

go 1.26.2

tool github.com/artyom/mdlinks/cmd/mdlinks

require (
	github.com/artyom/mdlinks v0.4.2 // indirect
	github.com/yuin/goldmark v1.8.7 // indirect
)
