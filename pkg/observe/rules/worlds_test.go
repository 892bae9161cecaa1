// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// bare leaves nothing of Fairlead in a world: neither programs nor objects.
func (w *world) bare() {
	w.Programs.Value = observe.Of(w.Programs.Value, check.RoleAPIServer)
	w.Deployments.Value, w.DaemonSets.Value, w.PDBs.Value, w.Reviews.Value = nil, nil, nil, nil
	w.ServerMetrics, w.Shown = nil, nil
	w.Leases.Value = w.Leases.Value[1:]
}

// outside hides kube-apiserver, whose Pods are in no managed cluster.
func (w *world) outside() {
	w.Programs.Value = append([]observe.Program{}, w.Programs.Value...)
	for i := range w.Programs.Value {
		if w.Programs.Value[i].Role == check.RoleAPIServer {
			w.Programs.Value = append(w.Programs.Value[:i], w.Programs.Value[i+1:]...)
			break
		}
	}
	w.APIServers = observe.Fact[map[string][]string]{Err: check.Skip("no Pod of kube-apiserver is in kube-system")}
	w.Node = observe.Fact[observe.HostFacts]{Err: check.Skip("this machine is not a control plane node")}
}

// upstreamHA replaces the tunnel by upstream's programs on three control plane nodes, with the flags of upstream's example. Servers use a kubeconfig
// of which it is not known whom it names.
func (w *world) upstreamHA() {
	w.t.Helper()
	w.bare()
	data, err := os.ReadFile("testdata/upstream-ha.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	places := map[check.Role][]string{check.RoleServer: {"cp1", "cp2", "cp3"}, check.RoleAgent: {"a", "b"}}
	leaf := w.ca.leaf(w.t, "konnectivity-server.kube-system.svc.cluster.local", now.Add(year))
	w.ServerMetrics, w.Shown = map[string]observe.Fact[observe.Metrics]{}, map[string]observe.Fact[[]*x509.Certificate]{}
	for i, doc := range strings.Split(string(data), "\n---\n") {
		var d appsv1.DaemonSet
		if err := yaml.UnmarshalStrict([]byte(doc), &d); err != nil {
			w.t.Fatal(err)
		}
		role := []check.Role{check.RoleServer, check.RoleAgent}[i]
		for _, node := range places[role] {
			p := podOf(role, d.Name+"-"+node, node, d.Namespace, *d.Spec.Template.DeepCopy())
			w.Programs.Value = append(w.Programs.Value, p)
			if role != check.RoleServer {
				continue
			}
			w.ServerMetrics[p.Name], w.Shown[p.Name] = observe.Known(metric(observe.MetricBackends, 2)), observe.Known([]*x509.Certificate{leaf})
			w.serverLease("kube-system", "konnectivity-proxy-server-"+node, map[string]string{"k8s-app": "konnectivity-server"}, 10*time.Second)
			w.node(node)
		}
		n := int32(len(places[role]))
		d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: n, CurrentNumberScheduled: n, NumberReady: n}
		w.DaemonSets.Value = append(w.DaemonSets.Value, d)
	}
	w.Reviews = observe.Known([]observe.Review{{Identity: "system:konnectivity-server", Role: string(check.RoleServer), Right: observe.ReviewTokens, Assumed: true}})
	const socket = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket"
	w.Node.Value.Egress.Value.UDS, w.Node.Value.Egress.Value.Socket, w.Node.Value.Socket.Value.Path = socket, socket, socket
	w.Node.Value.Certificates = observe.Known([]controlplane.Certificate{{Path: w.Bundle.Konnectivity.Server.Kubeconfig, State: controlplane.CertMissing}})
}

// node adds a healthy node.
func (w *world) node(name string) {
	n := w.Nodes.Value[0].DeepCopy()
	n.Name = name
	w.Nodes.Value = append(w.Nodes.Value, *n)
	w.NodeLeases.Value = append(w.NodeLeases.Value, lease(corev1.NamespaceNodeLease, name, name, now.Add(-4*time.Second)))
	w.Kubelets[name] = nil
}

// ipv6 lets all that has an address have one of IPv6, and kube-apiserver reach the server over TCP.
func (w *world) ipv6() {
	const host = "fd00:1::10"
	w.Host = "https://[fd00:1::1]:6443"
	leaf := w.ca.sign(w.t, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.ParseIP(host)}, NotAfter: now.Add(year)}, w.ca.cert)
	for i := range w.Programs.Value {
		p := &w.Programs.Value[i]
		p.HostIP = "fd00:1::2"
		switch p.Role {
		case check.RoleAgent:
			setFlag(p, "--proxy-server-host="+host)
		case check.RoleServer:
			for _, arg := range []string{"--mode=http-connect", "--uds-name=", "--server-port=8090", "--server-bind-address=::", "--health-bind-address=::1"} {
				setFlag(p, arg)
			}
			w.Shown[p.Name] = observe.Known([]*x509.Certificate{leaf})
		}
	}
	w.APIServerMetrics = observe.Known(metric(observe.MetricEgressStart, 100, "protocol", "http_connect", "transport", "tcp"))
	w.Node.Value.Egress = observe.Known(observe.Egress{Selected: true, Protocol: "HTTPConnect", URL: "https://[::1]:8090"})
	w.Node.Value.Socket = observe.Fact[observe.Socket]{Err: check.Skip("kube-apiserver reaches the server over TCP")}
}

// healthyWorld is a cluster without a fault that is not the default bundle.
type healthyWorld struct {
	bundle v1alpha1.Bundle
	do     func(w *world)
	// want are the results that are neither ok nor skipped.
	want map[string]rules.Status
	// tunnel is the status of FL-KON-001: skipped where there is no tunnel to judge.
	tunnel rules.Status
}

func healthyWorlds() map[string]healthyWorld {
	deployed := v1alpha1.Bundle{}
	deployed.Konnectivity.Agent.Form = v1alpha1.FormDeployment
	return map[string]healthyWorld{
		"upstream, highly available": {do: (*world).upstreamHA, tunnel: rules.OK,
			// Upstream's agents send keepalives each hour, so that a node that is gone is noticed late.
			want: map[string]rules.Status{"FL-KON-031": rules.Warning}},
		"agents as a Deployment": {bundle: deployed, do: func(*world) {}, tunnel: rules.OK},
		"IPv6 only":              {do: (*world).ipv6, tunnel: rules.OK},
		"kube-apiserver and servers outside of the cluster": {do: func(w *world) {
			w.outside()
			server := w.find(check.RoleServer).Name
			w.Programs.Value = slices.DeleteFunc(w.Programs.Value, func(p observe.Program) bool { return p.Name == server })
			w.ServerMetrics, w.Shown, w.Reviews.Value = nil, nil, w.Reviews.Value[:1]
		}, tunnel: rules.OK},
		"kube-apiserver outside of the cluster, servers inside": {do: (*world).outside, tunnel: rules.OK},
		"no tunnel, on a control plane node": {do: func(w *world) {
			w.bare()
			w.APIServers = observe.Known(map[string][]string{"Pod kube-system/kube-apiserver-cp": {"kube-apiserver", "--kubelet-certificate-authority=/ca"}})
			w.APIServerMetrics.Value = nil
			w.Node.Value.EgressFile = ""
			skip := check.Skip("kube-apiserver on this node has no --egress-selector-config-file")
			w.Node.Value.Egress, w.Node.Value.Socket = observe.Fact[observe.Egress]{Err: skip}, observe.Fact[observe.Socket]{Err: skip}
			w.Node.Value.Certificates = observe.Known([]controlplane.Certificate{{Path: w.Bundle.Konnectivity.Server.Kubeconfig, State: controlplane.CertMissing}})
		}, tunnel: rules.Skipped},
		"k3s: a tunnel of its own, without Pods": {do: func(w *world) {
			w.bare()
			w.outside()
			w.APIServerMetrics = observe.Known(metric(observe.MetricEgressStart, 100, "protocol", "http_connect", "transport", "tcp"))
		}, tunnel: rules.Skipped},
		"an egress selector file with Direct": {do: func(w *world) {
			w.bare()
			w.APIServerMetrics.Value = nil
			w.Node.Value.Egress = observe.Known(observe.Egress{Selected: true, Protocol: "Direct"})
			w.Node.Value.Socket.Err = check.Skip("kube-apiserver reaches the server over TCP")
		}, tunnel: rules.Skipped},
		"servers of other clusters": {do: func(w *world) {
			server := *w.find(check.RoleServer)
			w.bare()
			w.outside()
			w.APIServerMetrics.Value = nil
			server.Pod = server.Pod.DeepCopy()
			server.Name, server.Pod.Namespace, server.Pod.Spec.HostNetwork = "Pod hub/proxy-server-1", "hub", false
			server.Image = "quay.io/hub/proxy-server:v1"
			w.Programs.Value = append(w.Programs.Value, server)
		}, tunnel: rules.Skipped},
		"agents that are no Pods": {do: func(w *world) {
			server := *w.find(check.RoleServer)
			w.bare()
			w.Programs.Value = append(w.Programs.Value, server)
		}, tunnel: rules.Skipped},
	}
}

// TestHealthyWorlds proves that clusters of other shapes than the default bundle, in which all works, have no finding, but for those that are
// named.
func TestHealthyWorlds(t *testing.T) {
	for name, tc := range healthyWorlds() {
		t.Run(name, func(t *testing.T) {
			w := healthyOf(t, &tc.bundle)
			tc.do(w)
			got := map[string]rules.Status{}
			for _, r := range rules.Judge(w.Snapshot, rules.Options{}).Checks {
				if r.Status != rules.OK && r.Status != rules.Skipped {
					got[r.ID] = r.Status
					t.Logf("%s: %s %+v", r.ID, r.Reason, r.Findings)
				}
				if r.ID == "FL-KON-001" && r.Status != tc.tunnel {
					t.Errorf("%s is %s, want %s: %s %+v", r.ID, r.Status, tc.tunnel, r.Reason, r.Findings)
				}
			}
			want := tc.want
			if want == nil {
				want = map[string]rules.Status{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("results that are not ok (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoRightToAskKubelets proves that it is unknown whether a tunnel without visible agents works if this user may not ask kubelets.
func TestNoRightToAskKubelets(t *testing.T) {
	w := healthy(t)
	w.bare()
	w.Kubelets = map[string]error{"a": forbiddenBy(true)}
	if r := only(w, "FL-KON-001"); r.Status != rules.Unknown {
		t.Errorf("got %+v", r)
	}
	w.Kubelets = map[string]error{"a": forbiddenBy(false)} // a kubelet that refuses kube-apiserver has answered
	if r := only(w, "FL-KON-001"); r.Status != rules.Skipped {
		t.Errorf("got %+v", r)
	}
	w.Kubelets = map[string]error{"a": errDark}
	if r := only(w, "FL-KON-001"); r.Status != rules.Failed {
		t.Errorf("got %+v", r)
	}
}

// TestHalfOfTheServersDial: kubelets answer a kube-apiserver that uses no tunnel. That says nothing about those that use one.
func TestHalfOfTheServersDial(t *testing.T) {
	w := healthyOf(t, &v1alpha1.Bundle{})
	server := *w.find(check.RoleServer)
	w.bare()
	w.Programs.Value = append(w.Programs.Value, server)
	w.APIServers.Value["kube-apiserver-other"] = []string{"kube-apiserver"}
	for _, r := range rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-KON-001"}}).Checks {
		if r.ID == "FL-KON-001" && r.Status != rules.Failed {
			t.Errorf("%s is %s: %s %+v", r.ID, r.Status, r.Reason, r.Findings)
		}
	}
}

// TestServerOfAnotherImage: expired certificates of Fairlead are reported where the bundle has the server of another project.
func TestServerOfAnotherImage(t *testing.T) {
	w := healthyOf(t, &v1alpha1.Bundle{})
	w.find(check.RoleServer).Image = "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0"
	w.Node.Value.Certificates = observe.Known([]controlplane.Certificate{{Path: "/etc/kubernetes/pki/konnectivity-server.crt", State: controlplane.CertExpired}})
	for _, r := range rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-HST-005"}}).Checks {
		if r.ID == "FL-HST-005" && r.Status != rules.Failed {
			t.Errorf("%s is %s: %s %+v", r.ID, r.Status, r.Reason, r.Findings)
		}
	}
}
