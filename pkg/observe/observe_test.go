// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

func pod(namespace, image string, labels map[string]string, command ...string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, Command: command[:min(1, len(command))], Args: command[min(1, len(command)):]}}}}
}

// TestRoles proves that programs are recognized in the forms in which the Kubernetes documentation, k0s and others run them, whatever their names.
func TestRoles(t *testing.T) {
	names := incluster.NamesOf((&v1alpha1.Bundle{}).Defaulted())
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want check.Role
	}{
		"documentation's server": {pod("kube-system", "registry.k8s.io/kas-network-proxy/proxy-server:v0.0.37", nil, "/proxy-server", "--uds-name=/x", "--cluster-cert=/c"), check.RoleServer},
		"documentation's agent":  {pod("kube-system", "us.gcr.io/k8s-artifacts-prod/kas-network-proxy/proxy-agent:v0.0.37", nil, "/proxy-agent", "--proxy-server-host=35.1.1.1"), check.RoleAgent},
		"agent without command":  {pod("tunnel", "quay.io/k0sproject/apiserver-network-proxy-agent:v0.31", nil, "", "--proxy-server-host", "10.0.0.1"), check.RoleAgent},
		"our scheduler":          {pod("kube-system", "fairlead-dev/fairlead-scheduler:v0.1.0", map[string]string{"app.kubernetes.io/name": "my-scheduler", "component": "scheduler", "tier": "control-plane"}, "/usr/local/bin/kube-scheduler", "--config=/x"), check.RoleScheduler},
		"another scheduler":      {pod("volcano", "x/kube-scheduler:v1.36.0", nil, "kube-scheduler", "--config=/x"), check.RoleOtherScheduler},
		"API server":             {pod("kube-system", "registry.k8s.io/kube-apiserver:v1.36.3", nil, "kube-apiserver", "--secure-port=6443"), check.RoleAPIServer},
		"our operator":           {pod("fairlead-system", "fairlead-dev/fairlead-operator:v0.1.0", nil, "/fairlead-operator", "--leader-elect"), check.RoleOperator},
		"our API server":         {pod("kube-system", "fairlead-dev/fairlead-apiserver:v0.1.0", nil, "/fairlead-apiserver", "--secure-port=8443"), check.RoleTunnelAPI},
		"our gateway":            {pod("kube-system", "registry.example/fairlead:v0.1.0", nil, "/fairlead", "socks5", "--listen=:1080"), check.RoleGateway},
		"another command":        {pod("kube-system", "registry.example/fairlead:v0.1.0", nil, "/fairlead", "proxy"), ""},
		"something else":         {pod("kube-system", "registry.k8s.io/coredns/coredns:v1.12.0", nil, "/coredns", "-conf", "/etc/coredns/Corefile"), ""},
	} {
		found := programsOf([]corev1.Pod{tc.pod}, names)
		got := check.Role("")
		if len(found) > 0 {
			got = found[0].Role
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestFlags proves that flags are read in all forms that pflag knows, and that the last one counts.
func TestFlags(t *testing.T) {
	p := Program{Program: check.Program{Args: []string{"server", "--mode=grpc", "--uds-name", "/a", "-v=2", "--server_count=1", "--on", "--server-count=3"}}}
	for flag, want := range map[string]string{"mode": "grpc", "uds-name": "/a", "v": "2", "server-count": "3", "on": "true", "off": "none"} {
		if got := p.Flag(flag, "none"); got != want {
			t.Errorf("--%s: %q, want %q", flag, got, want)
		}
	}
}

// TestMetrics proves that families are kept by their prefix, that series are added up by labels, and that quantiles are those of PromQL.
func TestMetrics(t *testing.T) {
	text := `# HELP other x
# TYPE other counter
other{a="b"} 7
# TYPE tunnel_dials counter
tunnel_dials{protocol="grpc"} 3
tunnel_dials{protocol="http"} 4
# TYPE tunnel_seconds histogram
tunnel_seconds_bucket{le="0.1"} 50
tunnel_seconds_bucket{le="0.2"} 90
tunnel_seconds_bucket{le="+Inf"} 100
tunnel_seconds_sum 10
tunnel_seconds_count 100
`
	m, err := parseMetrics([]byte(text), "tunnel_")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m["other"]; ok {
		t.Error("a family without the prefix is kept")
	}
	if all, _ := m.Sum("tunnel_dials", nil); all != 7 {
		t.Errorf("sum %v", all)
	}
	if grpc, _ := m.Sum("tunnel_dials", map[string]string{"protocol": "grpc"}); grpc != 3 {
		t.Errorf("sum with a label %v", grpc)
	}
	for q, want := range map[float64]float64{0.25: 0.05, 0.5: 0.1, 0.7: 0.15, 0.99: 0.2} {
		if got := m.Quantile("tunnel_seconds", q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if got := m.Quantile("absent", 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing: %v", got)
	}
}

const egressYAML = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: GRPC
    transport:
      uds:
        udsName: SOCKET
`

// TestHostFacts proves what is read on a control plane node: the egress file that kube-apiserver's manifest names, the socket that it leads to,
// and their faults; and that another machine is no fault.
func TestHostFacts(t *testing.T) {
	root, err := os.MkdirTemp("", "fl") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	b := (&v1alpha1.Bundle{}).Defaulted()
	c := &collector{Target: Target{Root: root}, s: &Snapshot{Bundle: b, Names: incluster.NamesOf(b)}}
	if _, err := c.hostFacts(context.Background()); !check.IsSkip(err) {
		t.Errorf("no control plane node: %v", err)
	}
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(b.ControlPlane.ManifestsDir+"/kube-apiserver.yaml", "metadata: {name: kube-apiserver, namespace: kube-system}\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --egress-selector-config-file=/egress.yaml]\n")
	host, err := c.hostFacts(context.Background())
	if err != nil || host.Egress.Err == nil || !strings.Contains(host.Egress.Err.Error(), "egress.yaml") {
		t.Errorf("no egress file: %v, %v", err, host.Egress.Err)
	}
	put("/egress.yaml", strings.ReplaceAll(egressYAML, "SOCKET", "/s/tunnel.socket"))
	if host, _ = c.hostFacts(context.Background()); host.Egress.Err != nil || host.Egress.Value.UDS != "/s/tunnel.socket" || host.Egress.Value.Protocol != "GRPC" || host.Socket.Err == nil {
		t.Errorf("no socket: %+v", host)
	}
	if err := os.Mkdir(filepath.Join(root, "s"), 0o700); err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", filepath.Join(root, "s/tunnel.socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if host, _ = c.hostFacts(context.Background()); host.Socket.Err != nil || !host.Socket.Value.IsSocket || host.Socket.Value.Parent != 0o700 {
		t.Errorf("with a socket: %+v, %v", host.Socket.Value, host.Socket.Err)
	}
	testOwnCertificates(t, c, put)
	put("/egress.yaml", "egressSelection: []\n")
	if host, _ = c.hostFacts(context.Background()); host.Egress.Err == nil || !strings.Contains(host.Egress.Err.Error(), "egressSelection") {
		t.Errorf("a misspelled field: %v", host.Egress.Err)
	}
}

// testOwnCertificates proves that the certificates that the manifest of kube-apiserver names are read, that one that is missing or no certificate
// is an error of its own, and that a kubelet's rotated certificate hides the one that it was made from.
func testOwnCertificates(t *testing.T, c *collector, put func(name, text string)) {
	t.Helper()
	good, err := os.ReadFile(daemontest.Certificate(t).Cert)
	if err != nil {
		t.Fatal(err)
	}
	put(c.s.Bundle.ControlPlane.ManifestsDir+"/kube-apiserver.yaml", "metadata: {name: kube-apiserver, namespace: kube-system}\nspec:\n  containers:\n  - name: kube-apiserver\n"+
		"    command: [kube-apiserver, --egress-selector-config-file=/egress.yaml, --proxy-client-cert-file=/pki/front.crt, --kubelet-client-certificate=/pki/kubelet.crt, --etcd-certfile=/pki/none.crt]\n")
	put("/pki/front.crt", string(good))
	put("/pki/kubelet.crt", "no certificate")
	put("/var/lib/kubelet/pki/kubelet-server-current.pem", string(good))
	put("/var/lib/kubelet/pki/kubelet.crt", "an old one")
	host, err := c.hostFacts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range host.Own {
		got[f.Path] = f.Leaf.Err == nil
		if f.Leaf.Err == nil && f.Leaf.Value.Subject.CommonName != "test" || f.Renewal == "" || f.Use == "" {
			t.Errorf("%+v", f)
		}
	}
	want := map[string]bool{"/pki/front.crt": true, "/pki/kubelet.crt": false, "/pki/none.crt": false, "/var/lib/kubelet/pki/kubelet-server-current.pem": true}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRightsInWords proves that the notation of rights is read as the API server's attributes.
func TestRightsInWords(t *testing.T) {
	for text, want := range map[string]string{
		"list nodes": "list//nodes///", "create pods/binding": "create//pods/binding//", "list deployments.apps": "list/apps/deployments///",
		"update leases.coordination.k8s.io named a in b": "update/coordination.k8s.io/leases//a/b",
	} {
		a := Attributes(text)
		if got := strings.Join([]string{a.Verb, a.Group, a.Resource, a.Subresource, a.Name, a.Namespace}, "/"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestRefusalOfMany proves that the reason why the API server refuses an agent's Pod is found behind many events of the same kind, in its own
// namespace and in others.
func TestRefusalOfMany(t *testing.T) {
	const agents = "agents"
	event := func(space, name, message string) string {
		return `{"metadata":{"name":"e","namespace":"` + space + `"},"reason":"FailedCreate","message":"` + message + `","involvedObject":{"kind":"DaemonSet","namespace":"` + space + `","name":"` + name + `"}}`
	}
	other := strings.Repeat(event("shop", "web", "other")+",", 499) + event("shop", "web", "other")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"items":[]}`
		next := r.URL.Query().Get("continue")
		switch {
		case r.URL.Path == "/api/v1/namespaces/"+agents+"/events" && next == "2":
			body = `{"items":[` + event(agents, "konnectivity-agent", "exceeded quota") + `]}`
		case strings.HasSuffix(r.URL.Path, "/events") && next == "":
			body = `{"metadata":{"continue":"2"},"items":[` + other + `]}`
		case r.URL.Path == "/apis/apps/v1/daemonsets":
			body = `{"items":[{"metadata":{"name":"konnectivity-agent","namespace":"` + agents + `"},"spec":{"template":{"spec":{"containers":[{"name":"a","image":"x/konnectivity-agent:v1"}]}}}}]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(api.Close)
	s, err := Collect(t.Context(), Target{Config: &rest.Config{Host: api.URL}, Limit: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Workloads(check.RoleAgent); len(w) != 1 || w[0].Refusal != "exceeded quota" {
		t.Errorf("got %+v, %v", w, s.Refusals.Err)
	}
}
