// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// Bundles other than the default one come up and pass the quick checks, twice,
// because the second time connections are reused.
func TestBundleVariants(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"HTTP CONNECT":                  "konnectivity: {proxyProtocol: HTTPConnect}",
		"lease counting":                "konnectivity: {leaseCounting: true}",
		"destination host":              "konnectivity: {agent: {identifiers: [{type: Host, value: $(NODE_NAME)}, {type: IPv4, value: $(HOST_IP)}, {type: DefaultRoute, value: 'true'}]}, server: {proxyStrategies: [destHost, defaultRoute]}}",
		"own node first":                "konnectivity: {agent: {identifiers: [{type: Host, value: $(NODE_NAME)}, {type: IPv4, value: $(HOST_IP)}]}, server: {proxyStrategies: [destHost, default]}}",
		"another namespace, RSA, names": "namespace: tunnels\npki: {algorithm: RSA-2048}\nscheduler: {name: second, profiles: [{schedulerName: a}, {schedulerName: b}], leaderElection: {leaseNamespace: kube-system}}\nkonnectivity: {agentServiceAccount: agent, authenticationAudience: tunnel}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			file := filepath.Join(h.Dir, "bundle.yaml")
			if err := os.WriteFile(file, []byte(bundletest.File(yaml)), 0o600); err != nil {
				t.Fatal(err)
			}
			h.must("up", "-f", file, "-q")
			h.must("verify")
			h.must("down", "-q")
			h.nothingLeft("dev")
		})
	}
}

// TestLeaseNamespaceThatDoesNotExist observes SCHED-31 of docs/requirements.md.
func TestLeaseNamespaceThatDoesNotExist(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	file := filepath.Join(h.Dir, "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File("scheduler: {leaderElection: {leaseNamespace: locks}}")), 0o600); err != nil {
		t.Fatal(err)
	}
	h.try("up", "-f", file).want(t, 1, "scheduler.leaderElection.leaseNamespace", `"locks"`)
	h.neverMade()
}

// An unreadable kubeconfig is rejected before anything is created. From a
// kubeconfig that a flag names, "down" removes the context again.
func TestKubeconfigs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	own := filepath.Join(h.Dir, "own.kubeconfig")
	if err := os.WriteFile(own, []byte("clusters: [unclosed"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.try("up", "--kubeconfig", own).want(t, 1, own, "--kubeconfig")
	h.neverMade()
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	h.must("up", "--kubeconfig", own, "-q")
	h.must("verify", "--kubeconfig", own, "--only", "scheduler-lease")
	if _, err := os.Stat(h.Kubeconfig()); !os.IsNotExist(err) {
		t.Errorf("the usual kubeconfig was touched: %v", err)
	}
	h.must("down", "-q")
	if data, err := os.ReadFile(own); err != nil || len(data) == 0 || containsContext(data) {
		t.Errorf("after down it holds %q, %v", data, err)
	}
}
