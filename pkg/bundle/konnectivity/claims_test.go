// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
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
		if env[settings.AgentClaims] != "node" || (env[settings.DefaultRouteAgents] == "*") != want.defaultRoute {
			t.Errorf("%q: environment %v", identifiers, env)
		}
		objects, err := konnectivity.Objects(b)
		if err != nil {
			t.Fatal(err)
		}
		nodes := false
		for _, o := range objects {
			if role, ok := o.(*rbacv1.ClusterRole); ok {
				nodes = nodes || slices.Equal(role.Rules[0].Resources, []string{"nodes"}) && slices.Equal(role.Rules[0].Verbs, []string{"get", "list"})
			}
		}
		if nodes != want.nodes {
			t.Errorf("%q: the server may see nodes: %v", identifiers, nodes)
		}
	}
}

// TestNonNodeCIDRs: the server learns of the bundle's ranges, and of none by default.
func TestNonNodeCIDRs(t *testing.T) {
	for want, ranges := range map[string][]string{"": nil, "10.96.0.0/12,fd00:10::/112": {"10.96.0.0/12", "fd00:10::/112"}} {
		b := v1alpha1.New()
		b.Konnectivity.Server.NonNodeCIDRs = ranges
		got := ""
		for _, e := range staticServer(t, b).Spec.Containers[0].Env {
			if e.Name == settings.NonNodeCIDRs {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("%v: %s=%q", ranges, settings.NonNodeCIDRs, got)
		}
	}
}

// TestAllowedClientNames: over TCP the server accepts the certificate that is made for
// kube-apiserver and no other one of the same CA, unless the bundle has other names. Over
// a socket there are no certificates, and a server with names would not start.
func TestAllowedClientNames(t *testing.T) {
	for name, c := range map[string]struct {
		transport v1alpha1.Transport
		want      string
	}{
		"socket":       {v1alpha1.Transport{}, ""},
		"TCP":          {v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131"}}, "kube-apiserver-konnectivity-client"},
		"TCP with own": {v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131", ClientNames: []string{"a", "b"}}}, "a,b"},
	} {
		b := &v1alpha1.Bundle{Konnectivity: v1alpha1.Konnectivity{ProxyProtocol: v1alpha1.ProxyHTTPConnect, Transport: c.transport}}
		got, there := "", false
		for _, e := range staticServer(t, b.Defaulted()).Spec.Containers[0].Env {
			if e.Name == settings.AllowedClientNames {
				got, there = e.Value, true
			}
		}
		if got != c.want || there != (c.want != "") {
			t.Errorf("%s: %s=%q is set: %v, want %q", name, settings.AllowedClientNames, got, there, c.want)
		}
	}
}
