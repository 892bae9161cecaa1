// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestTLSFlags checks that --tls-min-version and --cipher-suites decide which clients can
// connect to the agents' port, with Fairlead's server as with upstream's.
// It observes KON-51 of docs/requirements.md.
func TestTLSFlags(t *testing.T) {
	const weak, strong = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for _, server := range []release{ours, v0_36_0} {
		for name, c := range map[string]struct {
			flags    []string
			version  uint16
			suite    uint16
			accepted bool
		}{
			"default, TLS 1.1":        {nil, tls.VersionTLS11, 0, false},
			"default, TLS 1.2":        {nil, tls.VersionTLS12, strong, true},
			"TLS 1.3 only, TLS 1.2":   {[]string{"--tls-min-version=VersionTLS13"}, tls.VersionTLS12, strong, false},
			"TLS 1.3 only, TLS 1.3":   {[]string{"--tls-min-version=VersionTLS13"}, tls.VersionTLS13, 0, true},
			"one suite, that":         {[]string{"--cipher-suites=" + tls.CipherSuiteName(strong)}, tls.VersionTLS12, strong, true},
			"one suite, another":      {[]string{"--cipher-suites=" + tls.CipherSuiteName(strong)}, tls.VersionTLS12, weak, false},
			"one suite, with TLS 1.3": {[]string{"--cipher-suites=" + tls.CipherSuiteName(strong)}, tls.VersionTLS13, 0, true},
		} {
			t.Run(server.String()+", "+name, func(t *testing.T) {
				p := startPair(t, options{mode: "grpc", server: server, agent: server, serverFlags: c.flags})
				cfg := clientTLS(t, p.files)
				cfg.MinVersion, cfg.MaxVersion, cfg.CipherSuites = c.version, c.version, []uint16{c.suite}
				nc, err := tls.DialWithDialer(&net.Dialer{Timeout: startBound}, "tcp", p.agents, cfg)
				if (err == nil) != c.accepted {
					t.Fatalf("connecting: %v, want it accepted: %v", err, c.accepted)
				}
				if err == nil {
					_ = nc.Close()
				}
			})
		}
	}
}

// clientTLS returns a configuration with the CA and the client certificate of a pair.
func clientTLS(t *testing.T, files daemontest.Files) *tls.Config {
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
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
}

// TestALPNFlag checks that an agent offers the protocols of --alpn-proto, for proxies
// between it and the server that inspect them.
func TestALPNFlag(t *testing.T) {
	for _, agent := range []release{ours, v0_36_0} {
		t.Run(agent.String(), func(t *testing.T) {
			files := daemontest.Certificate(t)
			offered := make(chan []string, 10)
			cfg := clientTLS(t, files)
			cfg.MinVersion = tls.VersionTLS12
			cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				offered <- h.SupportedProtos
				return nil, nil
			}
			l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					_ = nc.(*tls.Conn).Handshake()
					_ = nc.Close()
				}
			}()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			own := daemontest.Ports(t, 2)
			daemontest.Start(t, nil, agent.agent(), "--proxy-server-host=127.0.0.1", "--proxy-server-port="+port,
				"--ca-cert="+files.CA, "--agent-cert="+files.Cert, "--agent-key="+files.Key, "--alpn-proto=konnectivity-of-mine",
				"--health-server-host=127.0.0.1", "--health-server-port="+own[0], "--admin-server-port="+own[1])
			select {
			case protos := <-offered:
				if !slices.Contains(protos, "konnectivity-of-mine") || !slices.Contains(protos, "h2") {
					t.Errorf("the agent offers %q", protos)
				}
			case <-time.After(startBound):
				t.Error("the agent does not connect")
			}
		})
	}
}
