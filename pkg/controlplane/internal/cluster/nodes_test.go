// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// controlPlane is a cluster with control plane nodes, as far as kubeadm's stored
// configuration depends on them.
type controlPlane struct {
	client kubernetes.Interface
	states map[string]*journal.KubeadmState
	bundle map[string]*v1alpha1.Bundle
}

func newControlPlane(stored string) *controlPlane {
	return &controlPlane{states: map[string]*journal.KubeadmState{}, bundle: map[string]*v1alpha1.Bundle{}, client: fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: configMap}, Data: map[string]string{configKey: stored}})}
}

func (c *controlPlane) api(node string) API {
	return API{Client: c.client, Node: node, Bundle: c.bundle[node].Defaulted()}
}

func (c *controlPlane) stored(t *testing.T) string {
	t.Helper()
	text, err := c.api("").KubeadmConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (c *controlPlane) edit(t *testing.T, text string) {
	t.Helper()
	if err := c.api("").SetKubeadmConfig(t.Context(), c.stored(t), text); err != nil {
		t.Fatal(err)
	}
}

// install installs a bundle on a node, and checks that another installation changes nothing.
func (c *controlPlane) install(t *testing.T, node string, b *v1alpha1.Bundle) {
	t.Helper()
	c.bundle[node] = b
	change, after, err := c.api(node).AddTunnel(t.Context(), c.states[node])
	if err != nil {
		t.Fatal(err)
	}
	c.states[node] = after
	if change != nil {
		// The fake client ignores dry runs, so it holds that text already.
		if err := c.api(node).SetKubeadmConfig(t.Context(), change.Before, change.After); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.api(node).CheckTunnel(t.Context()); err != nil {
		t.Error(err)
	}
	if change, after, err := c.api(node).AddTunnel(t.Context(), c.states[node]); err != nil || change != nil || !reflect.DeepEqual(after, c.states[node]) {
		t.Errorf("%s again: %v, %+v, recorded\n%+v, want\n%+v", node, err, change, after, c.states[node])
	}
	c.removePods(t, node)
	pods := c.client.CoreV1().Pods(metav1.NamespaceSystem)
	for name, labels := range map[string]map[string]string{
		manifests.APIServer: {"component": manifests.APIServer}, konnectivity.ServerName: konnectivity.Server(b).Selector,
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + node, Labels: labels}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: name, Command: []string{name, "--" + apiserver.ConfigFlag + "=" + b.ControlPlane.EgressSelectorFile}}}}}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *controlPlane) removePods(t *testing.T, node string) {
	t.Helper()
	for _, name := range []string{manifests.APIServer, konnectivity.ServerName} {
		_ = c.client.CoreV1().Pods(metav1.NamespaceSystem).Delete(t.Context(), name+"-"+node, metav1.DeleteOptions{}) // there may be none yet
	}
}

func (c *controlPlane) uninstall(t *testing.T, node string) (reason string) {
	t.Helper()
	if c.states[node] == nil {
		t.Fatalf("%s has recorded nothing", node)
	}
	change, reason, err := c.api(node).RemoveTunnel(t.Context(), c.states[node])
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		if err := c.api(node).SetKubeadmConfig(t.Context(), change.Before, change.After); err != nil {
			t.Fatal(err)
		}
	}
	delete(c.states, node)
	c.removePods(t, node)
	return reason
}

// numbered returns bundles that differ in one thing each, in what kubeadm's stored
// configuration has of them.
func numbered(n byte) *v1alpha1.Bundle {
	b := v1alpha1.New()
	switch n {
	case '2':
		b.ControlPlane.EgressSelectorFile = "/etc/kubernetes/b/egress.yaml"
	case '3':
		b.Konnectivity.ServerHost = "three.example.com"
	case '4':
		b.Konnectivity.Transport.UDS.Path = "/run/konnectivity/server.socket"
	}
	return b
}

const plainConfig = "# mine\napiServer: {}\nclusterName: kubernetes\nkind: ClusterConfiguration\n"

// TestKubeadmConfigOfTwoNodes checks that the last of two nodes removes the tunnel from the
// stored configuration, whichever node was the first to install each bundle, and whichever is
// the last to uninstall.
func TestKubeadmConfigOfTwoNodes(t *testing.T) {
	for _, steps := range []string{
		"a1 b1", "a1 b1 a2 b2", "a1 b1 b2 a2", "a1 b1 a3 b3", "a1 b1 b3 a3", "a1 b1 a4 b4", "a1 b1 b4 a4",
		"a1 b1 a2 b2 a1 b1", "a1 b1 a2 b2 b1 a1", "a1 b1 b2 a2 a3 b3", "a1 b1 b2 a2 b3 a3", "a1 a2 b2 b4 a4 a3 b3",
	} {
		for _, last := range []string{"a", "b"} {
			t.Run(steps+", last "+last, func(t *testing.T) {
				c := newControlPlane(plainConfig)
				for step := range strings.FieldsSeq(steps) {
					c.install(t, step[:1], numbered(step[1]))
				}
				first := map[string]string{"a": "b", "b": "a"}[last]
				if reason := c.uninstall(t, first); !strings.Contains(reason, "["+last+"]") {
					t.Errorf("%q, want that %s still has the tunnel", reason, last)
				}
				if reason := c.uninstall(t, last); reason != "" || c.stored(t) != plainConfig {
					t.Errorf("%q is left, and the stored configuration is\n%s", reason, c.stored(t))
				}
			})
		}
	}
}

// TestKubeadmConfigOfTwoBundles covers nodes with different bundles: what is left is named.
func TestKubeadmConfigOfTwoBundles(t *testing.T) {
	c := newControlPlane(plainConfig)
	c.install(t, "a", numbered('1'))
	c.install(t, "b", numbered('1'))
	c.install(t, "b", numbered('2'))
	c.uninstall(t, "b")
	if reason := c.uninstall(t, "a"); !strings.Contains(reason, "/etc/kubernetes/b/egress.yaml") || !strings.Contains(reason, "kubeadm upgrade") {
		t.Errorf("%q is left, and the stored configuration is\n%s", reason, c.stored(t))
	}
}

// TestKubeadmConfigOfOthers checks that what a person had added before the installation stays,
// and what a person adds later, also after another bundle.
func TestKubeadmConfigOfOthers(t *testing.T) {
	const own = "apiServer:\n  certSANs:\n  - three.example.com\nclusterName: kubernetes\nkind: ClusterConfiguration\n"
	for _, steps := range []string{"3", "3 edit 3", "3 edit 2", "1 edit 3", "3 edit 2 3 edit 1", "3 edit lost 3", "3 lost 2"} {
		t.Run(steps, func(t *testing.T) {
			c, want := newControlPlane(own), own
			for step := range strings.FieldsSeq(steps) {
				switch step {
				case "edit":
					want = strings.Replace(want, "clusterName", "# edited\nclusterName", 1)
					c.edit(t, strings.Replace(c.stored(t), "clusterName", "# edited\nclusterName", 1))
				case "lost":
					c.edit(t, want)
				default:
					c.install(t, "a", numbered(step[0]))
				}
			}
			if reason := c.uninstall(t, "a"); reason != "" || c.stored(t) != want {
				t.Errorf("%q is left, and the stored configuration is\n%s", reason, c.stored(t))
			}
		})
	}
}
