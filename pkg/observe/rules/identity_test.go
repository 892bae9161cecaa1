// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestUnknownServerUser proves that a server whose kubeconfig may name another user is not said to lack a right: agents that are connected prove that
// it has it, and without them it is unknown.
func TestUnknownServerUser(t *testing.T) {
	for name, tc := range map[string]struct {
		assumed bool
		agents  float64
		want    rules.Status
	}{
		"known, agents connected":   {false, 2, rules.Failed},
		"assumed, agents connected": {true, 2, rules.OK},
		"assumed, no agents":        {true, 0, rules.Unknown},
	} {
		w := healthy(t)
		w.Reviews.Value[1].Allowed, w.Reviews.Value[1].Assumed = false, tc.assumed
		w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, tc.agents))
		if r := only(w, "FL-KON-028"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestBinding proves that the fix for a server without its right is for the identity that lacks it, with a name that the documentation's binding does
// not have: a binding's role cannot change. That of the bundle is installed.
func TestBinding(t *testing.T) {
	for name, tc := range map[string]struct {
		identity, image, want string
	}{
		"ours":                    {"system:konnectivity-server", "", "fairlead install -f bundle.yaml"},
		"upstream":                {"system:konnectivity-server", "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0", "--user=system:konnectivity-server"},
		"upstream's other":        {"tunnel", "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0", "--user=tunnel"},
		"upstream's in-cluster":   {"system:serviceaccount:tunnels:server", "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0", "--serviceaccount=tunnels:server"},
		"in-cluster, our program": {"system:serviceaccount:tunnels:server", "", "--serviceaccount=tunnels:server"},
	} {
		w := healthy(t)
		if tc.image != "" {
			w.find(check.RoleServer).Image = tc.image
		}
		w.Reviews.Value[1].Identity, w.Reviews.Value[1].Allowed = tc.identity, false
		fix := only(w, "FL-KON-028").Findings[0].Fix
		if !strings.HasSuffix(fix, tc.want) || strings.Contains(fix, "clusterrolebinding system:") || strings.HasPrefix(fix, "kubectl") != strings.HasPrefix(tc.want, "--") {
			t.Errorf("%s: %s, want %s", name, fix, tc.want)
		}
	}
}

// TestRefusedRights: a finding has all verbs that are refused of a resource.
func TestRefusedRights(t *testing.T) {
	w := healthy(t)
	account := w.Reviews.Value[0]
	for _, right := range []string{"watch pods/status", "list pods", "watch pods", "update pods in a", "list nodes"} {
		account.Right, account.Allowed = right, right == "list nodes"
		w.Reviews.Value = append(w.Reviews.Value, account)
	}
	var got []string
	for _, f := range only(w, "FL-SCH-007").Findings {
		got = append(got, f.Message)
	}
	if want := []string{"it may not watch pods/status", "it may not list or watch pods", "it may not update pods in a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
