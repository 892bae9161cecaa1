// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestAgentWithoutIntermediate: an agent whose certificate lacks its intermediate, which is
// never shown to the server, logs which CAs the server names and which one issued the
// certificate; with the intermediate in the file it connects.
func TestAgentWithoutIntermediate(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprintf("upstream=%v, %s", upstreamOnly, tls.VersionName(version)), func(t *testing.T) {
				r := NewRig(t, server.Config{})
				between := r.CA.Intermediate(t, "between")
				crt, key := between.Issue(t, "agent", time.Now().Add(time.Hour))
				config := func() (*tls.Config, error) {
					pair, err := tls.LoadX509KeyPair(crt, key)
					cfg, _ := r.AgentTLSConfig()()
					cfg.Certificates, cfg.MaxVersion = []tls.Certificate{pair}, version
					return cfg, err
				}
				var log lines
				a := r.LaunchAgent(agent.Config{TLS: config, Protocol: Only(upstreamOnly), Logger: log.logger()}, "")
				want := fmt.Sprintf(`the server accepts certificates of "CN=%s"; --agent-cert is issued by "CN=between": append the intermediate certificates to the file`, r.CA.cert.Subject.CommonName)
				Eventually(t, Patience, "the reason is logged", func() bool { return log.has(want) })
				leaf, err := os.ReadFile(crt)
				if err != nil {
					t.Fatal(err)
				}
				ca, err := os.ReadFile(between.File)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(crt, append(leaf, ca...), 0o600); err != nil {
					t.Fatal(err)
				}
				Eventually(t, Patience, "the agent connects with its chain", a.Ready)
			})
		}
	}
}
