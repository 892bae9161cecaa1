// SPDX-License-Identifier: Apache-2.0

package controlplane

import "testing"

// TestServerHealth: a server is asked where it listens, whether an older release wrote its manifest, without an address, or
// the bundle names one.
func TestServerHealth(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"http://127.0.0.1:8134/readyz": {"--health-port=8134"},
		"http://127.0.0.1:9134/readyz": {"--health-port=9134", "--health-bind-address=0.0.0.0"},
		"http://192.0.2.1:8134/readyz": {"--health-bind-address=192.0.2.1", "--health-port=8134"},
		"http://[::1]:8134/readyz":     {"--health-bind-address=::1", "--health-port=8134"},
	} {
		if got := serverHealth(args, "/readyz"); got != want {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
}
