// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// TestOpenSSH dials through OpenSSH's server, where it is installed.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	b := sshdtest.New(t, "PermitOpen 127.0.0.1:* localhost.:* nothing.invalid.:*")
	home := filepath.Join(b.Home, ".ssh")
	d := newDialer(t, "ssh="+b.Target, Options{SSH: SSHOptions{
		ConfigFile: "none", AgentSocket: "none", IdentityFiles: []string{filepath.Join(home, "id_ed25519")}, KnownHosts: []string{filepath.Join(home, "known_hosts")},
	}})
	sshTraffic(t, d)
	wantReason(t, d, address(gateway.KindNode, "127.0.0.2", 80), gateway.ReasonDenied, "PermitOpen")
	wantReason(t, d, address(gateway.KindExternal, "nothing.invalid", 80), gateway.ReasonNotFound, "DNS")
}
