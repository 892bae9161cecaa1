// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// trafficPair returns a server with two agents, and a dialer through it with which a
// test can detect cut connections. With HTTP CONNECT over TCP the tunnel reports the
// cut. The gRPC client takes any end for an orderly one, so TLS inside the tunnel
// reports it, as it does for kube-apiserver.
func trafficPair(t *testing.T, mode string, links int) (p *pair, second *daemontest.Process, dial tunneltest.Dialer, wrap *tls.Config) {
	t.Helper()
	files := daemontest.Certificate(t)
	config := mutual(t, files)
	if mode == "grpc" {
		p = startPair(t, options{mode: mode, links: links})
		dial, wrap = p.dialer(), config
	} else {
		var frontend string
		p, frontend = startOverTCP(t, options{mode: mode, links: links}, files)
		dial = tunneltest.ConnectStrictly(frontend, config)
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
