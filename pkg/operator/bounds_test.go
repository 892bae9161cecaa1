// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestBoundedBundle: a Bundle that asks for paths of control plane nodes and for another image is not applied, says which field and which flag of
// the operator it is, and leaves what runs. A pool that asks for another image does not run.
func TestBoundedBundle(t *testing.T) {
	testutil.Integration(t, "the operator applies to an API server")
	daemontest.Beside(t)
	l := startProfiles(t, map[string]any{"scheduler": map[string]any{"enabled": false}, "konnectivity": map[string]any{
		"transport": map[string]any{"uds": map[string]any{"path": "/etc/kubernetes/manifests-of-bob/x.socket"}},
		"server":    map[string]any{"form": "DaemonSet", "image": "evil.example/root:1"},
	}})
	says := func(reason string, texts ...string) {
		t.Helper()
		l.look()
		b, err := l.bundle()
		if err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled)
		if c == nil || c.Reason != reason {
			t.Fatalf("the condition is %+v, want %s", c, reason)
		}
		for _, text := range texts {
			if !strings.Contains(c.Message, text) {
				t.Errorf("the message does not have %q: %s", text, c.Message)
			}
		}
	}
	daemonSets := func() (names []string) {
		t.Helper()
		all, err := l.client.AppsV1().DaemonSets("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all.Items {
			names = append(names, d.Name+" "+d.Spec.Template.Spec.Containers[0].Image)
		}
		return names
	}
	says(v1beta1.ReasonBlocked, "spec.konnectivity.server.form", "--allow-host-access", "spec.konnectivity.server.image", "--allowed-images=evil.example/root:1")
	if got := daemonSets(); len(got) > 0 {
		t.Fatalf("these run: %q", got)
	}

	l.patch(`{"spec": {"konnectivity": {"transport": null, "server": null}}}`)
	says(v1beta1.ReasonAsWanted)
	usual := daemonSets()
	if len(usual) != 1 || !strings.HasPrefix(usual[0], "konnectivity-agent ") {
		t.Fatalf("these run: %q, want the agents", usual)
	}
	l.patch(`{"spec": {"konnectivity": {"agent": {"image": "evil.example/agent:1"}}}}`)
	says(v1beta1.ReasonBlocked, "spec.konnectivity.agent.image", "--allowed-images=evil.example/agent:1")
	if got := daemonSets(); len(got) != 1 || got[0] != usual[0] {
		t.Errorf("these run: %q, want %q", got, usual)
	}
	l.patch(`{"spec": {"konnectivity": {"agent": null}}}`)
	says(v1beta1.ReasonAsWanted)

	pools := l.kind("tunnelpools").Namespace("kube-system")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "kube-system", "evil", map[string]any{"image": "evil.example/agent:1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.r = append(l.r, &operator.PoolReconciler{Client: newRacing(t, l.cfg), Config: l.cfg})
	l.look()
	c := l.condition(pools, "evil", v1beta1.PoolAccepted, v1beta1.ReasonInvalid)
	for _, text := range []string{"spec.image", "--allowed-images=evil.example/agent:1"} {
		if !strings.Contains(c.Message, text) {
			t.Errorf("the pool's message does not have %q: %s", text, c.Message)
		}
	}
	if _, err := l.client.AppsV1().Deployments("kube-system").Get(t.Context(), "konnectivity-agent-pool-evil", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the agents of the pool run: %v", err)
	}

	// A Bundle that is not allowed can be deleted, with what it brought before.
	if err := pools.Delete(t.Context(), "evil", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.patch(`{"spec": {"deletionPolicy": "Delete", "konnectivity": {"agent": {"image": "evil.example/agent:1"}}}}`)
	says(v1beta1.ReasonBlocked)
	if err := l.bundles.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, time.Minute, func() error {
		l.look()
		if _, err := l.bundles.Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the Bundle is not gone")
		}
		return nil
	})
	if got := daemonSets(); len(got) > 0 {
		t.Errorf("these run without a Bundle: %q", got)
	}
}
