// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// TestRefusalsOfAddressesTellNothing: a client learns neither which object has an address, nor its ports, nor whether
// any object has it, unless it may reach that object. That holds for addresses that it sends, and for those that it
// writes into the EndpointSlices of a Service that it may reach. The log has what it is not told.
func TestRefusalsOfAddressesTellNothing(t *testing.T) {
	t.Parallel()
	client, _ := existing()
	for name, authorizer := range judges(t, client) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(_ *world, cfg *Config) {
				cfg.Resolver = resolve.New(client, resolve.Options{Namespace: "shop"})
				cfg.Authorizer = authorizer
			})
			causes := map[string]string{
				"10.0.0.10:443": "", "10.0.0.10:1": "", "[::ffff:10.0.0.10]:1": "", "10.1.0.1:80": "", "192.0.2.1:10250": "", "203.0.113.7:443": "", "203.0.113.7:1": "",
				"10.0.0.99:443": "", "10.1.0.99:80": "", "198.51.100.1:443": "",
				"mine.own:1": "", "mine.own:2": "", "mine.own:3": "", "mine.own:4": "", "mine.own:5": "",
				"10.0.0.20:1": "", "10.0.0.20:2": "", "10.0.0.20:3": "", "10.0.0.20:4": "", "10.0.0.20:5": "",
			}
			for to := range causes {
				what := "address"
				if strings.HasPrefix(to, "mine") {
					what = "name"
				}
				if name == "only" && what == "name" { // nothing else judges what a listed name leads to
					delete(causes, to)
					continue
				}
				want := fmt.Sprintf("403 Forbidden (denied) %s is denied: no rule allows this %[2]s to \"alice\": ask for a rule that allows this %[2]s, or for the right to what it stands for\n", to, what)
				if got := refusalOf(t, w.addr, to); got != want {
					t.Errorf("%s: %s, want %s", to, got, want)
				}
			}
			for _, r := range w.ended(t, len(causes)) {
				causes[r.Destination] = r.Error
			}
			for to, object := range map[string]string{"10.0.0.10:1": "exists", "10.1.0.1:80": "exists-0", "10.0.0.20:2": "exists"} {
				if name != "only" && !strings.Contains(causes[to], object) {
					t.Errorf("the log does not say why %s is refused: %s", to, causes[to])
				}
			}
			// What has been decided by the address alone, and what the client may reach, is explained.
			for to, text := range map[string]string{
				"127.0.0.1:80": "loopback", "169.254.169.254:80": "link-local", "[::ffff:169.254.169.254]:80": "link-local",
				"10.0.0.20:9": "Service own/mine has no port 9", "mine.own:9": "Service own/mine has no port 9",
			} {
				if got := refusalOf(t, w.addr, to); !strings.Contains(got, text) {
					t.Errorf("%s: %s, want %q", to, got, text)
				}
			}
		})
	}
}

// TestAddressesAreExplained: where all clients may reach all objects, refusals say what is wrong with an address.
func TestAddressesAreExplained(t *testing.T) {
	t.Parallel()
	client, _ := existing()
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.Resolver = resolve.New(client, resolve.Options{Namespace: "shop"})
		cfg.Authorizer = &rules.Authorizer{}
	})
	for to, text := range map[string]string{
		"10.0.0.10:1": "Service shop/exists has no port 1", "198.51.100.1:443": "add it to --allow", "mine.own:2": "Service shop/exists has no ready endpoint", "mine.own:5": "add it to --allow",
	} {
		if got := refusalOf(t, w.addr, to); !strings.Contains(got, text) {
			t.Errorf("%s: %s, want %q", to, got, text)
		}
	}
}

// TestLoadBalancersByName: whom a rule lets connect to the name of a load balancer needs the right to its Service, too, as for
// one that is known by its address. The connection goes where DNS says: a Service's owner may choose that name. What denies
// the Service denies the name. The refusal does not tell the Service, and the log does.
func TestLoadBalancersByName(t *testing.T) {
	t.Parallel()
	balanced := func(namespace, name, host string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: host}}}}}
	}
	client, _ := existing()
	for _, s := range []*corev1.Service{balanced("shop", "secret", "exists-a.Example.org"), balanced("lb", "mine", "exists-b.example.org")} {
		if err := client.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	list := func(text string) []destinations.Rule {
		rules, err := destinations.ParseRules(text)
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	review := rules.NewReview(client.AuthorizationV1().SubjectAccessReviews())
	const opens, hidden, explained = "502 ", "no rule allows this name", "denied by rule"
	for name, c := range map[string]struct {
		authorizer          rules.Authorizer
		secret, mine, other string
	}{
		"reviews":              {rules.Authorizer{Allow: list("*.example.org"), Review: review}, hidden, opens, opens},
		"by address":           {rules.Authorizer{Allow: list("198.51.100.0/24"), Review: review}, hidden, opens, opens},
		"denials":              {rules.Authorizer{Allow: list("*.example.org"), Deny: list("secret.shop")}, hidden, opens, opens},
		"a denial of a port":   {rules.Authorizer{Allow: list("*.example.org"), Deny: list("mine.lb:443,mine.lb:80")}, opens, hidden, opens},
		"a denial of others":   {rules.Authorizer{Allow: list("*.example.org"), Deny: list("mine.lb:80")}, opens, opens, opens},
		"a denial of the name": {rules.Authorizer{Allow: list("*.example.org"), Deny: list("exists-a.example.org")}, explained, opens, opens},
		"no judge":             {rules.Authorizer{Allow: list("*.example.org")}, opens, opens, opens},
	} {
		t.Run(name, func(t *testing.T) {
			var asked dns
			w := newWorld(t, func(_ *world, cfg *Config) {
				cfg.Resolver = resolve.New(client, resolve.Options{Namespace: "shop", LookUp: asked.lookUp})
				cfg.Authorizer = &c.authorizer
			})
			w.setDial(gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes"))
			for host, want := range map[string]string{"exists-a.example.org": c.secret, "EXISTS-A.example.org.": c.secret, "exists-b.example.org": c.mine, "exists-c.example.org": c.other} {
				if got := refusal(t, w.addr, host); !strings.Contains(got, want) || strings.Contains(got, "secret") {
					t.Errorf("%s: %s, want %q", host, got, want)
				}
			}
			for _, r := range w.ended(t, 4) {
				if strings.HasPrefix(r.Destination, "exists-a.") && c.secret == hidden && !strings.Contains(r.Error, "secret") {
					t.Errorf("the log does not say why: %s", r.Error)
				}
			}
		})
	}
}

// TestDenyServiceKubernetes: what denies Service kubernetes denies the API server by each of the Service's names and
// addresses, and by the kubeconfig's address. What denies a cluster IP holds, although the API server is elsewhere.
func TestDenyServiceKubernetes(t *testing.T) {
	t.Parallel()
	client, _ := existing()
	if err := client.Tracker().Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 443}}}}); err != nil {
		t.Fatal(err)
	}
	for rule, denied := range map[string][]string{
		"kubernetes.default.svc": {"kubernetes.default:443", "kubernetes.default.svc.cluster.local:443", "10.0.0.1:443", "203.0.113.9:6443"},
		"kubernetes.default:443": {"kubernetes.default:443", "10.0.0.1:443", "203.0.113.9:6443"},
		"203.0.113.9":            {"kubernetes.default:443", "10.0.0.1:443", "203.0.113.9:6443"},
		"10.0.0.1":               {"10.0.0.1:443", "[::ffff:10.0.0.1]:443"},
	} {
		deny, err := destinations.ParseRules(rule)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, func(_ *world, cfg *Config) {
			resolver := resolve.New(client, resolve.Options{APIServer: "203.0.113.9:6443"})
			cfg.Resolver, cfg.Authorizer = resolver, &rules.Authorizer{APIServer: "203.0.113.9:6443", APIServers: resolver.APIServers, Deny: deny}
		})
		w.setDial(gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes"))
		for _, to := range denied {
			if got := refusalOf(t, w.addr, to); !strings.HasPrefix(got, "403 ") {
				t.Errorf("--deny %s: %s: %s", rule, to, got)
			}
		}
	}
}

// TestServiceKubernetesIsTheAPIServer: a client without any right reaches the API server of the kubeconfig by the names
// and the cluster IP of Service kubernetes, though the endpoint of that is a node.
func TestServiceKubernetesIsTheAPIServer(t *testing.T) {
	t.Parallel()
	client, _ := existing()
	name, port := "https", int32(6443)
	for _, o := range []runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: name, Port: 443}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}},
	} {
		if err := client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	for name, authorizer := range judges(t, client) {
		for _, server := range []string{"203.0.113.9:6443", "api.example:6443"} {
			t.Run(name+" "+server, func(t *testing.T) {
				var dialed []string
				w := newWorld(t, func(w *world, cfg *Config) {
					a := *authorizer
					a.APIServer, a.Unresolved = server, func(host string, port uint16) bool { return gateway.SameAddress(host, port, server) }
					cfg.Resolver, cfg.Authorizer = resolve.New(client, resolve.Options{Namespace: "shop", APIServer: server}), &a
					w.dial = func(_ context.Context, d gateway.Destination) (gateway.Conn, error) {
						dialed = append(dialed, d.String())
						return nil, gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes")
					}
				})
				for _, host := range []string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.0.0.1"} {
					if got := refusal(t, w.addr, host); !strings.HasPrefix(got, "502 ") {
						t.Errorf("%s: %s", host, got)
					}
				}
				if len(dialed) != 4 || slices.ContainsFunc(dialed, func(to string) bool { return to != server }) {
					t.Errorf("dialed %q, want %s four times", dialed, server)
				}
				if got := refusal(t, w.addr, "192.0.2.1"); !strings.HasPrefix(got, "403 ") {
					t.Errorf("the endpoint's address: %s", got)
				}
			})
		}
	}
}
