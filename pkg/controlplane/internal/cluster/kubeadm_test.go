// SPDX-License-Identifier: Apache-2.0

package cluster

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
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: configMap}, Data: map[string]string{configKey: first}})
	var state *journal.KubeadmState
	plan := func(b *v1alpha1.Bundle) *journal.KubeadmChange {
		t.Helper()
		api := API{Client: client, Bundle: b.Defaulted()}
		change, after, err := api.AddTunnel(t.Context(), state)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			// The fake client ignores dry runs, so it holds that text already.
			if err := api.SetKubeadmConfig(t.Context(), change.Before, change.After); err != nil {
				t.Fatal(err)
			}
		}
		state = after
		return change
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
	change, _, err := API{Client: client, Bundle: v1alpha1.New()}.RemoveTunnel(t.Context(), state)
	if err != nil || change == nil || change.After != first {
		t.Errorf("%v: taken out again it is %+v, want\n%s", err, change, first)
	}
}
