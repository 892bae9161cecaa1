// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
)

// converted is an object of kind TunnelPool or Bundle as the API server stores it, from the one that a user has created.
func converted(t *testing.T, version, kind string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": "default", "namespace": "kube-system", "uid": "1"}}}
	if err := conversion.Convert(u.Object, conversion.V1beta1); err != nil {
		t.Fatal(err)
	}
	return u
}

// poolArgs are the arguments of the agents of a pool, and what is wrong with it.
func poolArgs(t *testing.T, ofBundle, ofPool *unstructured.Unstructured) ([]string, error) {
	t.Helper()
	b, pool := &v1beta1.Bundle{}, &v1beta1.TunnelPool{}
	if err := decode(ofBundle, b, &b.Spec, &b.Status); err != nil {
		t.Fatal(err)
	}
	if err := decode(ofPool, pool, &pool.Spec, &pool.Status); err != nil {
		t.Fatal(err)
	}
	o, err := poolObject(b, pool, operator.Bounds{})
	if err != nil {
		return nil, err
	}
	return o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args, nil
}

// TestPoolAddress: a pool that sets the host or the port alone has the other one of the Bundle.
func TestPoolAddress(t *testing.T) {
	list := func(address map[string]any) map[string]any {
		return map[string]any{"serverAddresses": []any{address}}
	}
	both := map[string]any{"host": "tunnel.example.com", "port": int64(9132)}
	old := map[string]any{"serverHost": "tunnel.example.com", "agentPort": int64(9132)}
	for name, tc := range map[string]struct {
		version    string
		b, pool    map[string]any
		host, port string
	}{
		"nothing":           {conversion.V1beta1, list(both), nil, "tunnel.example.com", "9132"},
		"host":              {conversion.V1beta1, list(both), list(map[string]any{"host": "10.0.0.1"}), "10.0.0.1", "9132"},
		"port":              {conversion.V1beta1, list(both), list(map[string]any{"port": int64(9133)}), "tunnel.example.com", "9133"},
		"both":              {conversion.V1beta1, list(both), list(map[string]any{"host": "10.0.0.1", "port": int64(9133)}), "10.0.0.1", "9133"},
		"serverHost":        {conversion.V1alpha1, old, map[string]any{"serverHost": "10.0.0.1"}, "10.0.0.1", "9132"},
		"agentPort":         {conversion.V1alpha1, old, map[string]any{"agentPort": int64(9133)}, "tunnel.example.com", "9133"},
		"host, by default":  {conversion.V1beta1, list(map[string]any{"port": int64(9132)}), list(map[string]any{"port": int64(9133)}), "konnectivity-server.kube-system.svc", "9133"},
		"port, by default":  {conversion.V1beta1, nil, list(map[string]any{"host": "10.0.0.1"}), "10.0.0.1", "8132"},
		"empty serverHost":  {conversion.V1alpha1, old, map[string]any{"serverHost": ""}, "tunnel.example.com", "9132"},
		"empty, and a port": {conversion.V1alpha1, old, map[string]any{"serverHost": "", "agentPort": int64(9133)}, "tunnel.example.com", "9133"},
	} {
		args, err := poolArgs(t, converted(t, tc.version, kindBundle, map[string]any{"konnectivity": tc.b}), converted(t, tc.version, kindPool, tc.pool))
		if err != nil || !slices.Contains(args, "--proxy-server-host="+tc.host) || !slices.Contains(args, "--proxy-server-port="+tc.port) {
			t.Errorf("%s: %v, %q, want %s and %s", name, err, args, tc.host, tc.port)
		}
	}
}

// TestPoolIdentifiers: identifiers of a v1alpha1 pool that v1beta1 cannot express are refused, as a Bundle's are, also where the Bundle
// has some. Another spelling of the same is not, and neither is what a client has written over them.
func TestPoolIdentifiers(t *testing.T) {
	of := func(identifiers string) map[string]any { return map[string]any{"identifiers": identifiers} }
	used := func(agent map[string]any) map[string]any {
		return map[string]any{"server": map[string]any{"proxyStrategies": []any{"destHost", "default"}}, "agent": agent}
	}
	pool := func(identifiers string) *unstructured.Unstructured {
		return converted(t, conversion.V1alpha1, kindPool, of(identifiers))
	}
	changed := pool("ipv4=10.0.0.1&hostname=web")
	changed.Object["spec"] = map[string]any{"identifiers": []any{map[string]any{"type": "Host", "value": "web"}}}
	for name, tc := range map[string]struct {
		b    map[string]any
		pool *unstructured.Unstructured
		want string // in the arguments, or in the error after a !
	}{
		"misspelled":             {used(nil), pool("ipv4=10.0.0.1&hostname=web"), "!hostname"},
		"nothing else":           {nil, pool("hostname=web"), "!hostname"},
		"beside the Bundle's":    {used(of("ipv4=10.0.0.2")), pool("hostname=web"), "!hostname"},
		"like the Bundle's":      {used(of("ipv4=10.0.0.1")), pool("ipv4=10.0.0.1&hostname=web"), "!hostname"},
		"not URL-encoded":        {used(nil), pool("ipv4=10.0.0.1&host=%zz"), "!URL-encoded"},
		"good":                   {used(nil), pool("ipv4=10.0.0.1"), "--agent-identifiers=ipv4=10.0.0.1"},
		"spelled in another way": {used(nil), pool("ipv6=fd00%3A%3A1"), "--agent-identifiers=ipv6=fd00::1"},
		"changed since":          {used(nil), changed, "--agent-identifiers=host=web"},
	} {
		args, err := poolArgs(t, converted(t, conversion.V1alpha1, kindBundle, map[string]any{"konnectivity": tc.b}), tc.pool)
		message, refused := strings.CutPrefix(tc.want, "!")
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), "identifiers")):
			t.Errorf("%s: %v, %q, want %q", name, err, args, message)
		case !refused && (err != nil || !slices.Contains(args, tc.want)):
			t.Errorf("%s: %v, %q, want %q", name, err, args, tc.want)
		}
	}
}
