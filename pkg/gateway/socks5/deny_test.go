// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// renamed resolves each name to a destination of another one, as the name of Service kubernetes leads
// to the API server.
type renamed struct{ asked []string }

func (r *renamed) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	r.asked = append(r.asked, host)
	return gateway.Destination{Host: "192.0.2.1", Port: port, Kind: gateway.KindExternal, Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)}, nil
}

// TestDeniedAsSent: a host that a rule of --deny names is denied, whatever it leads to, and not looked up.
func TestDeniedAsSent(t *testing.T) {
	t.Parallel()
	deny, err := destinations.ParseRules("kubernetes.default.svc,*.secret.example")
	if err != nil {
		t.Fatal(err)
	}
	allow, err := destinations.ParseRules("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	r := &renamed{}
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.Resolver, cfg.Authorizer = r, &rules.Authorizer{Allow: allow, Deny: deny}
	})
	w.setDial(gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes"))
	for _, to := range []string{"kubernetes.default.svc:443", "KUBERNETES.default.svc.:443", "db.secret.example:5432"} {
		if status := connectStatus(t, w.addr, to); status != http.StatusForbidden {
			t.Errorf("CONNECT %s: status %d", to, status)
		}
	}
	if len(r.asked) != 0 {
		t.Errorf("looked up %q", r.asked)
	}
	if connectStatus(t, w.addr, "other.example:443"); len(r.asked) != 1 {
		t.Errorf("looked up %q, want the host that no rule denies", r.asked)
	}
}

// TestDenyHoldsForPods: what denies a Service denies its Pods by their addresses, too, by each name of such an address,
// and if another Service leads there, of the same namespace or by its EndpointSlices. Pods of other Services are not
// denied, and ports that the rule does not name are not either. What denies a Pod by its name denies it behind a Service.
func TestDenyHoldsForPods(t *testing.T) {
	t.Parallel()
	prod := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "prod", Name: name} }
	pod := func(name, ip string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: prod(name), Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}}}}
	}
	slice := func(namespace, service, port string, number int32, addr string) *discoveryv1.EndpointSlice {
		notReady := false
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Ports:      []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: &notReady, Serving: new(true)}}},
		}
	}
	client := fake.NewClientset(
		&corev1.Service{ObjectMeta: prod("db"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}},
		&corev1.Service{ObjectMeta: prod("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.10", Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "lure"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.20", Ports: []corev1.ServicePort{{Name: "sql", Port: 80}}}},
		&corev1.Service{ObjectMeta: prod("db-too"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.11", Ports: []corev1.ServicePort{{Name: "sql", Port: 6000}}}},
		&corev1.Service{ObjectMeta: prod("db-headless"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}},
		&corev1.Service{ObjectMeta: prod("web-too"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.12", Ports: []corev1.ServicePort{{Name: "http", Port: 8000}}}},
		slice("prod", "db", "sql", 5432, "10.1.0.5"), slice("prod", "web", "http", 8080, "10.1.0.6"), slice("own", "lure", "sql", 5432, "10.1.0.5"),
		slice("prod", "db-too", "sql", 5432, "10.1.0.5"), slice("prod", "db-headless", "sql", 5432, "10.1.0.5"), slice("prod", "web-too", "http", 8080, "10.1.0.6"),
		pod("db-0", "10.1.0.5"), pod("web-0", "10.1.0.6"), pod("alone", "10.1.0.7"),
	)
	byAddress := []string{
		"10.1.0.5:5432", "10-1-0-5.prod.pod:5432", "10-1-0-5.prod.pod.cluster.local:5432", "[::ffff:10.1.0.5]:5432", "lure.own:80",
		"db-too.prod:6000", "10.0.0.11:6000", "db-headless.prod:5432", "10-1-0-5.db-headless.prod.svc:5432",
	}
	others := []string{"10.1.0.6:8080", "10.1.0.7:5432", "10-1-0-7.prod.pod:80", "web.prod:80", "web-too.prod:8000"}
	file := func(text string) *rules.Authorizer {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: fairlead.dev/v1alpha1\nkind: GatewayRules\nallow: [{}]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := rules.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return &rules.Authorizer{File: f}
	}
	list := func(text string) *rules.Authorizer {
		deny, err := destinations.ParseRules(text)
		if err != nil {
			t.Fatal(err)
		}
		return &rules.Authorizer{Deny: deny}
	}
	for name, c := range map[string]struct {
		authorizer   *rules.Authorizer
		denied, open []string
	}{
		"all ports":                     {list("db.prod"), append(byAddress, "10.1.0.5:22", "db-headless.prod:22"), others},
		"a pattern":                     {list("*.prod.svc"), append(byAddress, "10.1.0.6:8080"), []string{"10.1.0.7:5432"}},
		"one port":                      {list("db.prod.svc.cluster.local:5432"), byAddress, append([]string{"10.1.0.5:22", "db-headless.prod:22"}, others...)},
		"a port by its map":             {list("web.prod:80"), []string{"10.1.0.6:8080", "web-too.prod:8000", "10.0.0.12:8000"}, []string{"10.1.0.6:9090", "10.1.0.5:5432", "10.1.0.7:80"}},
		"a port of another Service":     {list("web.prod:8000"), nil, append([]string{"10.0.0.12:8000"}, others...)},
		"another namespace":             {list("db.test,db.own"), nil, append(others, byAddress...)},
		"rules":                         {file("deny: [{names: [db]}]"), byAddress, others},
		"rules for Services and a port": {file("deny: [{kinds: [Service], names: [web], ports: ['80']}]"), []string{"10.1.0.6:8080"}, []string{"10.1.0.6:9090", "10.1.0.5:5432"}},
		"rules for another client":      {file("deny: [{users: [bob], names: [db]}]"), nil, append(others, byAddress...)},
		"rules for a Pod":               {file("deny: [{names: [db-0]}]"), append(byAddress, "db.prod:5432"), others},
		"rules for a Pod and its port":  {file("deny: [{kinds: [Pod], names: ['*-0'], ports: ['5432']}]"), append(byAddress, "db.prod:5432"), append([]string{"10.1.0.5:22", "db.prod:22"}, others...)},
		"rules for a Pod elsewhere":     {file("deny: [{names: [db-0], namespaces: [own]}]"), nil, append(others, byAddress...)},
		"rules for all Pods":            {file("deny: [{kinds: [Pod]}]"), []string{"10.1.0.5:5432", "lure.own:80"}, []string{"db.prod:5432", "db-too.prod:6000", "web.prod:80"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world, cfg *Config) {
				resolver := resolve.New(client, resolve.Options{Namespace: "own"})
				c.authorizer.ServicesOf = resolver.ServicesOf
				cfg.Resolver, cfg.Authorizer = resolver, c.authorizer
				w.dial = func(context.Context, gateway.Destination) (gateway.Conn, error) {
					return nil, gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes")
				}
			})
			for want, all := range map[int][]string{http.StatusForbidden: c.denied, http.StatusBadGateway: c.open} {
				for _, to := range all {
					if got := connectStatus(t, w.addr, to); got != want {
						t.Errorf("CONNECT %s: status %d, want %d", to, got, want)
					}
				}
			}
		})
	}
}

// TestDenyExternalNames: what denies an ExternalName Service denies what it leads to, inside and outside of the cluster,
// and not the target by its own name.
func TestDenyExternalNames(t *testing.T) {
	t.Parallel()
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
	}
	client := fake.NewClientset(
		service("web", corev1.ServiceSpec{ClusterIP: "10.0.0.10", Ports: []corev1.ServicePort{{Port: 443}}}),
		service("out", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "exists.example.org"}),
		service("mixed", corev1.ServiceSpec{ClusterIP: "10.0.0.11", Ports: []corev1.ServicePort{{Port: 443}}}),
		service("to-mixed", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "mixed.shop.svc.cluster.local"}),
		&discoveryv1.EndpointSlice{ // its endpoint is a host outside of the cluster
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mixed-a", Labels: map[string]string{discoveryv1.LabelServiceName: "mixed"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(443))}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.9"}}},
		},
		service("in", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.shop.svc.cluster.local"}),
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8443))}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
		},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}}},
	)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	text := "apiVersion: fairlead.dev/v1alpha1\nkind: GatewayRules\nallow: [{}, {kinds: [External]}]\ndeny: [{kinds: [Service], names: [out, in, to-mixed]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := rules.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(_ *world, cfg *Config) {
		var asked dns
		resolver := resolve.New(client, resolve.Options{Namespace: "shop", LookUp: asked.lookUp})
		cfg.Resolver, cfg.Authorizer = resolver, &rules.Authorizer{File: f, ServicesOf: resolver.ServicesOf}
	})
	w.setDial(gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes"))
	for to, want := range map[string]int{
		"out:443": http.StatusForbidden, "out.shop.svc:443": http.StatusForbidden, "in.shop:443": http.StatusForbidden,
		"to-mixed:443": http.StatusForbidden, "mixed.shop:443": http.StatusBadGateway,
		"exists.example.org.:443": http.StatusBadGateway, "web.shop:443": http.StatusBadGateway,
	} {
		if got := connectStatus(t, w.addr, to); got != want {
			t.Errorf("CONNECT %s: status %d, want %d", to, got, want)
		}
	}
}
