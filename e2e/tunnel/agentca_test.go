// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestAgentCAReplaced: once the server's CA file lacks the CA of a connected agent's
// certificate, the server drains the agent. What it carries goes on, and with the CA back
// the agent is back.
func TestAgentCAReplaced(t *testing.T) {
	t.Parallel()
	const reviews = "fairlead_tunnel_server_certificate_reviews_total"
	p := startPair(t, options{mode: "grpc", serverFlags: []string{"--token-review-interval=1s"}})
	count := func(name string, want float64) func() error {
		return func() error {
			n, err := metric(p.serverHealth, name)
			if err == nil && n < want {
				err = fmt.Errorf("%s is %v, want %v", name, n, want)
			}
			return err
		}
	}
	held := tunneltest.MustDial(t, p.dialer(), p.echo)
	daemontest.Eventually(t, startBound, count(reviews+`{result="accepted"}`, 2))
	if n, _ := metric(p.serverHealth, `fairlead_tunnel_server_links_expelled_total{protocol="fairlead"}`); n != 0 {
		t.Fatalf("%v links were drained though their certificates are good", n)
	}

	trusted, err := os.ReadFile(p.files.CA)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(daemontest.Certificate(t).CA)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, p.files.CA, foreign)
	daemontest.Eventually(t, startBound, count(reviews+`{result="refused"}`, 1))
	daemontest.Eventually(t, startBound, count(`fairlead_tunnel_server_links_expelled_total{protocol="fairlead"}`, 1))
	if _, err := held.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err != nil {
		t.Errorf("what the agent carried was cut: %v", err)
	}
	_ = held.Close()
	daemontest.Eventually(t, startBound, backends(p, 0))

	overwrite(t, p.files.CA, trusted)
	daemontest.Eventually(t, startBound, backends(p, 1))
}

func overwrite(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
