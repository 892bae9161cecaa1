// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// dns answers for names with "exists" in them, and notes which it was asked for.
type dns struct {
	mu    sync.Mutex
	asked []string
}

func (d *dns) lookUp(_ context.Context, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, host)
	if strings.Contains(host, "exists") {
		return []netip.Addr{netip.MustParseAddr("198.51.100.1")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// existing is a cluster in which each object has "exists" in its name, and whose API server lets clients reach
// Service shop/mine only. Reads are the requests to it but for access reviews.
func existing() (client *fake.Clientset, reads func() int) {
	shop := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	yes := true
	client = fake.NewClientset(
		&corev1.Service{ObjectMeta: shop("exists"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.10", Ports: []corev1.ServicePort{{Port: 443}}}},
		&corev1.Service{ObjectMeta: shop("headless"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 443}}}},
		&corev1.Service{ObjectMeta: shop("mine"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "exists.example.org"}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "headless-a", Labels: map[string]string{discoveryv1.LabelServiceName: "headless"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Hostname: new("exists"), Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
		},
		&corev1.Pod{ObjectMeta: shop("exists-0"), Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}}},
		&corev1.Service{ObjectMeta: shop("exists-too"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.11", Ports: []corev1.ServicePort{{Port: 443}}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}}}},
		// Who may reach a Service of a team's own writes its EndpointSlices, with addresses of others.
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "mine"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.20", Ports: []corev1.ServicePort{
			{Name: "pod", Port: 1}, {Name: "service", Port: 2}, {Name: "port", Port: 3}, {Name: "node", Port: 4}, {Name: "outside", Port: 5},
		}}},
		lure("pod", "10.1.0.1", 8080), lure("service", "10.0.0.10", 443), lure("port", "10.0.0.10", 1), lure("node", "192.0.2.1", 10250), lure("outside", "198.51.100.1", 443),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "exists"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}},
	)
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		r.Status.Allowed = r.Spec.ResourceAttributes.Resource == "services" && r.Spec.ResourceAttributes.Name == "mine"
		return true, r, nil
	})
	return client, func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() != "create" {
				n++
			}
		}
		return n
	}
}

// lure is an endpoint of Service own/mine for the port of a name.
func lure(name, addr string, port int32) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "mine-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: "mine"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}}},
	}
}

// refusal is the whole answer to a CONNECT request for port 443.
func refusal(t *testing.T, addr, host string) string {
	t.Helper()
	return refusalOf(t, addr, host+":443")
}

// refusalOf is the whole answer to a CONNECT request.
func refusalOf(t *testing.T, addr, to string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(nc, "CONNECT %s HTTP/1.1\r\n%s\r\n", to, right()); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Status + " " + string(body)
}

// TestRefusalsTellNothing: a client that may not reach a name gets the same refusal whether or not the name
// exists, and causes no DNS request. What decides is the name, so the cluster is not read for it; only the Pod
// that has an address has to be found before it can be judged.
func TestRefusalsTellNothing(t *testing.T) {
	t.Parallel()
	const pods = "10-1-0-%s.shop.pod"
	names := []string{
		"%s", "%s.shop", "%s.shop.svc", "%s.shop.svc.cluster.local", "%s.headless.shop.svc", "%s.example.org", "www.%s.example.org", "%s.example.org.", pods,
	}
	client, reads := existing()
	for name, authorizer := range judges(t, client) {
		authorizer.APIServer = "10.0.0.1:443"
		t.Run(name, func(t *testing.T) {
			var asked dns
			w := newWorld(t, func(_ *world, cfg *Config) {
				cfg.Resolver = resolve.New(client, resolve.Options{Namespace: "shop", LookUp: asked.lookUp})
				cfg.Authorizer = authorizer
			})
			for _, form := range names {
				there, absent := "exists", "absent"
				if form == pods {
					there, absent = "1", "9"
				}
				before := reads()
				a, b := fmt.Sprintf(form, there), fmt.Sprintf(form, absent)
				first, second := refusal(t, w.addr, a), refusal(t, w.addr, b)
				// The answer may repeat what the client has sent.
				if strings.ReplaceAll(first, there, absent) != strings.ReplaceAll(second, there, absent) || !strings.HasPrefix(first, "403 ") {
					t.Errorf("%s exists, %s does not:\n%s%s", a, b, first, second)
				}
				if n := reads() - before; n != 0 && form != pods {
					t.Errorf("the cluster is read %d times for %s and %s", n, a, b)
				}
			}
			// Who may reach an ExternalName Service may not for that reason reach what it names.
			if got := refusal(t, w.addr, "mine.shop"); !strings.HasPrefix(got, "403 ") {
				t.Errorf("an ExternalName Service: %s", got)
			}
			if len(asked.asked) != 0 {
				t.Errorf("DNS was asked for %q", asked.asked)
			}
		})
	}
}

// judges returns authorizers that let clients reach Services named mine only, each by another means.
func judges(t *testing.T, client *fake.Clientset) map[string]*rules.Authorizer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: fairlead.dev/v1alpha1\nkind: GatewayRules\nallow: [{kinds: [Service], names: [mine]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := rules.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	only, err := destinations.ParseRules("mine.shop,mine.own")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*rules.Authorizer{
		"reviews": {Review: rules.NewReview(client.AuthorizationV1().SubjectAccessReviews())},
		"rules":   {File: f},
		"only":    {Only: only},
	}
}

// TestRefusalsByAddress: where rules allow hosts outside of the cluster by their addresses, names have to be looked
// up. The refusal is the same for a name that does not exist as for one with another address.
func TestRefusalsByAddress(t *testing.T) {
	t.Parallel()
	allow, err := destinations.ParseRules("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	client, _ := existing()
	var asked dns
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.Resolver = resolve.New(client, resolve.Options{Namespace: "shop", LookUp: asked.lookUp})
		cfg.Authorizer = &rules.Authorizer{Allow: allow, Review: rules.NewReview(client.AuthorizationV1().SubjectAccessReviews())}
	})
	first, second := refusal(t, w.addr, "www.exists.org"), refusal(t, w.addr, "www.absent.org")
	if strings.ReplaceAll(first, "exists", "absent") != second || !strings.HasPrefix(first, "403 ") {
		t.Errorf("%s%s", first, second)
	}
	if want := []string{"www.exists.org", "www.absent.org"}; !slices.Equal(asked.asked, want) {
		t.Errorf("DNS was asked for %q, want %q", asked.asked, want)
	}
	causes := map[string]string{"www.exists.org:443": "no Service, Pod or node", "www.absent.org:443": "DNS has no address for it"}
	for _, r := range w.ended(t, 2) { // the log has what the client is not told
		if cause := causes[r.Destination]; cause == "" || r.Result != "denied" || !strings.Contains(r.Error, cause) {
			t.Errorf("%s: result %s: %s", r.Destination, r.Result, r.Error)
		}
	}
	// A name that may be one of a Service, too, is no way around that.
	first, second = refusal(t, w.addr, "exists.shop"), refusal(t, w.addr, "absent.shop")
	if strings.ReplaceAll(first, "exists", "absent") != second || !strings.HasPrefix(first, "403 ") {
		t.Errorf("%s%s", first, second)
	}
}
