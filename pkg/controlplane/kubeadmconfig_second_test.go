// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// TestKubeadmConfigOfSecondBundle checks that a second installation replaces
// what the first one stored, and that uninstalling restores the text from before
// both.
func TestKubeadmConfigOfSecondBundle(t *testing.T) {
	const first = "# mine\napiServer: {}\nclusterName: kubernetes\nkind: ClusterConfiguration\n"
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeadmConfigMap}, Data: map[string]string{kubeadmKey: first}})
	var state *State
	plan := func(b *v1alpha1.Bundle) *journal.KubeadmChange {
		t.Helper()
		n := newNode(Options{Bundle: b}.defaulted())
		n.client, n.state = client, state
		p := newPlanner(n, &journal.Journal{}, &State{})
		if state != nil {
			p.After = state.Clone()
		}
		p.planKubeadm(t.Context())
		if err := p.Err(); err != nil {
			t.Fatal(err)
		}
		if c := p.Journal.Kubeadm; c != nil {
			// The fake client ignores dry runs, so it holds that text already.
			if err := n.setClusterConfiguration(t.Context(), c.Before, c.After, false); err != nil {
				t.Fatal(err)
			}
		}
		state = p.After
		return p.Journal.Kubeadm
	}
	bundle := func(host, file string) *v1alpha1.Bundle {
		b := v1alpha1.New()
		b.Konnectivity.ServerHost = host
		b.ControlPlane.EgressSelectorFile = file
		return b
	}
	plan(bundle("one.example.com", "/etc/kubernetes/a/egress.yaml"))
	if again := plan(bundle("one.example.com", "/etc/kubernetes/a/egress.yaml")); again != nil {
		t.Errorf("the same bundle again changed\n%s\nto\n%s", again.Before, again.After)
	}
	second := plan(bundle("two.example.com", "/etc/kubernetes/b/egress.yaml"))
	if second == nil || strings.Contains(second.After, "one.example.com") || strings.Contains(second.After, "/a/") ||
		!strings.Contains(second.After, "two.example.com") || !strings.Contains(second.After, "/b/egress.yaml") {
		t.Fatalf("%+v", second)
	}
	n := newNode(Options{}.defaulted())
	n.client = client
	change, _, err := n.withoutTunnel(t.Context(), state.Kubeadm)
	if err != nil || change == nil || change.After != first {
		t.Errorf("%v: taken out again it is %+v, want\n%s", err, change, first)
	}
}
