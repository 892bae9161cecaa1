// SPDX-License-Identifier: Apache-2.0

package gateway

import "testing"

// TestTunnelErrorKinds: a status 503 is a limit only if the answer says so: a server that cannot review a token has it, too.
func TestTunnelErrorKinds(t *testing.T) {
	for text, want := range map[string]Reason{
		"503 limit: server has 10 dials pending, its limit": ReasonBusy,
		"503 the token cannot be reviewed now":              ReasonPathDown,
		"503 Service Unavailable":                           ReasonPathDown,
	} {
		if got := ReasonOf(TunnelError(Destination{}, 503, text)); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
