// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
)

// The gateway runs if the bundle has it, with the bundle's arguments: the Deployment form with the
// token of its ServiceAccount, the static form through the cluster's own Konnectivity server.
func TestGateway(t *testing.T) {
	if _, ok := specs(t, testPlan(t, ""))[progGateway]; ok {
		t.Error("the gateway runs by default")
	}
	for form, want := range map[string]string{"Deployment": "--via=network", "StaticPod": "--via=direct"} {
		p := testPlan(t, "gateway: {enabled: true, form: "+form+", rules: {}}")
		for i, name := range p.gatewayPorts() {
			p.state.Ports[name] = 23000 + i
		}
		spec, ok := specs(t, p)[progGateway]
		if !ok || spec.Args[0] != "socks5" || spec.Path != "/bin/fairlead" {
			t.Fatalf("%s: %+v", form, spec)
		}
		for _, arg := range []string{want, "--listen=127.0.0.1:23000", "--metrics-address=127.0.0.1:23001", "--rules=" + p.gatewayRules(), "--access-review=true", "--kubeconfig=" + p.Kubeconfig(progGateway)} {
			if !slices.Contains(spec.Args, arg) {
				t.Errorf("%s: %q lacks %s", form, spec.Args, arg)
			}
		}
		if static := form == "StaticPod"; static != slices.Contains(spec.Args, "--server-socket="+p.TunnelSocket()) || static == (len(spec.NeedsFiles) > 0) || static != gateway.IsStatic(p.bundle) {
			t.Errorf("%s: %q, files %q", form, spec.Args, spec.NeedsFiles)
		}
		if p.gatewayAccess() == nil {
			t.Errorf("%s: verify does not know the gateway", form)
		}
	}
}
