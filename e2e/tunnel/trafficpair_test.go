package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
)

// trafficPair is a server with two agents and what dials through it so that cut
// connections can be told: with HTTP CONNECT over TCP it is the tunnel that says so, and
// with GRPC, whose client takes any end for an orderly one, TLS inside does as
// kube-apiserver's.
func trafficPair(t *testing.T, mode string, links int) (p *pair, second *daemontest.Process, dial konntest.Dialer, wrap *tls.Config) {
	t.Helper()
	files := daemontest.Certificate(t)
	config := mutual(t, files)
	if mode == "grpc" {
		p = startPair(t, options{mode: mode, links: links})
		dial, wrap = p.dialer(), config
	} else {
		var frontend string
		p, frontend = startOverTCP(t, options{mode: mode, links: links}, files)
		dial = konntest.ConnectStrictly(frontend, config)
	}
	second = p.startAgent()
	daemontest.Eventually(t, startBound, backends(p, 2))
	return p, second, dial, wrap
}

// startOverTCP is startPair with the frontend on TCP, with mutual TLS.
func startOverTCP(t *testing.T, o options, files daemontest.Files) (p *pair, frontend string) {
	t.Helper()
	port := daemontest.Ports(t, 1)[0]
	o.front = "127.0.0.1:" + port
	o.serverFlags = append(o.serverFlags,
		"--uds-name=", "--server-bind-address=127.0.0.1", "--server-port="+port,
		"--server-cert="+files.Cert, "--server-key="+files.Key, "--server-ca-cert="+files.CA)
	return startPair(t, o), o.front
}

// mutual is for both sides of mutual TLS.
func mutual(t *testing.T, files daemontest.Files) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("no CA in %s", files.CA)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}
