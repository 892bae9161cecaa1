package konnectivity_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/variables"
)

// TestAgentClaims: agents of a bundle may claim their own node and what the bundle
// says, and the server may see what it needs for that and no more.
func TestAgentClaims(t *testing.T) {
	for identifiers, want := range map[string]struct{ defaultRoute, nodes bool }{
		"":                                   {false, false},
		"host=$(NODE_NAME)":                  {false, true},
		"ipv4=$(HOST_IP)":                    {false, true},
		"default-route=true":                 {true, false},
		"default-route=false":                {false, false},
		"ipv6=$(HOST_IP)&default-route=true": {true, true},
	} {
		b := v1alpha1.New()
		b.Konnectivity.Agent.Identifiers = identifiers
		env := map[string]string{}
		for _, e := range staticServer(t, b).Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		if env[variables.AgentClaims] != "node" || (env[variables.DefaultRouteAgents] == "*") != want.defaultRoute {
			t.Errorf("%q: environment %v", identifiers, env)
		}
		objects, err := konnectivity.Objects(b)
		if err != nil {
			t.Fatal(err)
		}
		nodes := false
		for _, o := range objects {
			if role, ok := o.(*rbacv1.ClusterRole); ok {
				nodes = nodes || slices.Equal(role.Rules[0].Resources, []string{"nodes"}) && slices.Equal(role.Rules[0].Verbs, []string{"get"})
			}
		}
		if nodes != want.nodes {
			t.Errorf("%q: the server may see nodes: %v", identifiers, nodes)
		}
	}
}
