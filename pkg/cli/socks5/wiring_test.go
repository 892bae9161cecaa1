// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"net"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// TestUnresolved: the tunnel's API resolves any name, as its rules hold after that, unless the proxy has rules of its own; the
// other paths are given the API server's name only. For the network path and for an agent, which may be upstream's and
// deny nothing, the proxy resolves names before it judges the address.
func TestUnresolved(t *testing.T) {
	for via, want := range map[string][2]bool{"direct": {true, false}, "ssh=me@bastion": {true, false}, "network": {true, false}, "portforward": {true, false}, "api": {true, true}} {
		o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
		o.Via = via
		names := o.unresolved("api.inner:6443")
		is := func(host string) bool { return names != nil && names(host, 6443) }
		if got := [2]bool{is("API.inner."), is("other.inner")}; got != want {
			t.Errorf("--via %s resolves the API server's name and another one: %v, want %v", via, got, want)
		}
		if r := o.resolveOptions("default", "api.inner:6443"); (r.LookUp != nil) != (via == "network" || via == "direct") || r.PodsByName != (via == "portforward" || via == "api") || o.dialOptions(nil, "").API.ByAddress {
			t.Errorf("--via %s: the proxy resolves names: %v, Pods by name: %v", via, r.LookUp != nil, r.PodsByName)
		}
		// The tunnel's API does not know the proxy's rules, and a Pod's name does not say which address it has.
		for name, judge := range map[string]func(*Options){
			"reviews": func(o *Options) { o.AccessReview = true }, "rules": func(o *Options) { o.Rules = "f" }, "deny": func(o *Options) { o.Deny = []string{"192.0.2.1"} },
			"only": func(o *Options) { o.Only = []string{"192.0.2.1"} },
		} {
			o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
			o.Via = via
			judge(o)
			r := o.resolveOptions("default", "api.inner:6443")
			if (r.LookUp != nil) != (via == "network" || via == "direct" || via == "api") || r.PodsByName || !o.dialOptions(nil, "").API.ByAddress || o.unresolved("api.inner:6443")("other.inner", 6443) {
				t.Errorf("--via %s with %s: the proxy resolves names: %v, Pods by name: %v", via, name, r.LookUp != nil, r.PodsByName)
			}
		}
	}
}

// TestAuthorizerAsksResolver: rules that deny a Service hold for its Pods and for the API server's addresses, which only
// the resolver knows.
func TestAuthorizerAsksResolver(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.5"}}},
	}
	server := slice.DeepCopy()
	server.Namespace, server.Labels[discoveryv1.LabelServiceName] = "default", "kubernetes"
	server.Endpoints[0].Addresses, server.Ports = []string{"192.0.2.1"}, []discoveryv1.EndpointPort{{Port: new(int32(6443))}}
	o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
	o.Deny, o.resolver = []string{"db.prod", "kubernetes.default"}, resolve.New(fake.NewClientset(slice, server), resolve.Options{})
	a, err := o.authorizer(nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1080})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{"10.1.0.5:5432": false, "10.1.0.6:5432": true} {
		pod := gateway.Destination{Kind: gateway.KindPod, Host: "pod", Port: 5432, Namespace: "prod", Name: "x", Addr: netip.MustParseAddrPort(address)}
		if err := a.Authorize(t.Context(), &user.DefaultInfo{}, pod); (err == nil) != want {
			t.Errorf("a Pod at %s: %v, want allowed %v", address, err, want)
		}
	}
	node := gateway.Destination{Kind: gateway.KindNode, Host: "node", Port: 6443, Name: "node", Addr: netip.MustParseAddrPort("192.0.2.1:6443")}
	if a.Authorize(t.Context(), &user.DefaultInfo{}, node) == nil {
		t.Error("the API server at its node is allowed")
	}
}
