// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// resetAndInit does to a node what "kubeadm reset" does, which removes the
// directories of manifests and certificates and its own kubeconfigs, and "kubeadm
// init" after it: another CA.
func resetAndInit(t *testing.T, root string) {
	t.Helper()
	h := nodefs.Host{Root: root}
	for _, name := range []string{"manifests", "pki", "admin.conf", "kubelet.conf"} {
		if err := os.RemoveAll(h.Path("/etc/kubernetes/" + name)); err != nil {
			t.Fatal(err)
		}
	}
	copyTree(t, anotherNode(t), root)
}

// told collects notes.
func told(o *Options) *strings.Builder {
	var notes strings.Builder
	o.Notef = func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) }
	return &notes
}

// TestOtherCluster: the state of a cluster that the node has left is named by every
// command, and taken over by install, which leaves nothing of it.
func TestOtherCluster(t *testing.T) {
	root := testNode(t)
	install(t, root)
	old, err := nodefs.Host{Root: root}.Read(v1alpha1.DefaultServerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	resetAndInit(t, root)
	o := testOptions(root)
	for name, run := range map[string]func() error{
		"uninstall":           func() error { _, err := Uninstall(t.Context(), o); return err },
		"uninstall --dry-run": func() error { _, _, err := PlanUninstall(t.Context(), o); return err },
		"renew":               func() error { _, err := Renew(t.Context(), RenewOptions{Options: o}); return err },
		"status": func() error {
			s, err := Inspect(t.Context(), o)
			if len(s.Problems) > 0 && strings.Contains(s.Problems[0], "another cluster") {
				return fmt.Errorf("%w: %w: %s", ErrPreflight, errOtherCluster, s.Problems[0])
			}
			return err
		},
	} {
		err := run()
		if !errors.Is(err, ErrPreflight) || !errors.Is(err, errOtherCluster) ||
			!strings.Contains(err.Error(), "controlplane install") || !strings.Contains(err.Error(), v1alpha1.DefaultServerKubeconfig) {
			t.Errorf("%s: %v; want that it is of another cluster, and what to do", name, err)
		}
	}
	if now, err := (nodefs.Host{Root: root}).Read(v1alpha1.DefaultServerKubeconfig); err != nil || string(now) != string(old) {
		t.Errorf("something was changed: %v", err)
	}
	notes := told(&o)
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notes.String(), "another cluster") {
		t.Errorf("nothing was said:\n%s", notes)
	}
	n := newNode(o.defaulted())
	if data, err := n.Read(v1alpha1.DefaultServerKubeconfig); err != nil || n.certs().CheckServerKubeconfig(data) != nil {
		t.Errorf("the kubeconfig is not of this cluster: %v, %v", err, n.certs().CheckServerKubeconfig(data))
	}
	if r := install(t, root); r.Changed {
		t.Errorf("the second run changed %v", r.Files)
	}
	other := testNode(t)
	copyTree(t, root, other)
	uninstall(t, other)
	for _, f := range []string{v1alpha1.DefaultServerKubeconfig, v1alpha1Egress, serverFile, StateDir} {
		if (nodefs.Host{Root: other}).Exists(f) {
			t.Errorf("%s is left", f)
		}
	}
}

// TestJournalOfOtherCluster: a run that was killed in the old cluster is neither
// completed nor undone in the new one.
func TestJournalOfOtherCluster(t *testing.T) {
	for _, killAt := range []string{"journal applying", "applied " + serverFile, "applied " + apiServerFile} {
		root := testNode(t)
		point, alive := runKilled(t, root, string(OpInstall), killAt, "")
		if alive {
			t.Fatalf("it came to its end before %s", killAt)
		}
		resetAndInit(t, root)
		manifest, err := nodefs.Host{Root: root}.Read(apiServerFile)
		if err != nil {
			t.Fatal(err)
		}
		o := testOptions(root)
		notes := told(&o)
		if _, err := Uninstall(t.Context(), o); err != nil && !errors.Is(err, ErrNotInstalled) {
			t.Errorf("after %s: %v", point, err)
		}
		if !strings.Contains(notes.String(), "forgotten") {
			t.Errorf("after %s nothing was said:\n%s", point, notes)
		}
		if now, err := (nodefs.Host{Root: root}).Read(apiServerFile); err != nil || string(now) != string(manifest) {
			t.Errorf("after %s: kube-apiserver's manifest was changed (%v)", point, err)
		}
		if (nodefs.Host{Root: root}).Exists(journal.File) {
			t.Errorf("after %s: the journal is still there", point)
		}
	}
}

// TestRotatedCA: a CA that was rotated is no other cluster: one of two CAs is known,
// or if both rotations were missed, the API server is.
func TestRotatedCA(t *testing.T) {
	root := testNode(t)
	o := testOptions(root)
	o.client = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID("u-1")}})
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	n := newNode(o.defaulted())
	state, err := n.readState()
	if err != nil {
		t.Fatal(err)
	}
	h, ca := nodefs.Host{Root: root}, "/etc/kubernetes/pki/ca.crt"
	old, err := h.Read(ca)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := nodefs.Host{Root: anotherNode(t)}.Read(ca)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ca, uid string
		same    bool
	}{
		"both": {string(old) + string(fresh), "", true},
		"new":  {string(fresh), "u-1", true},
		"mute": {string(fresh), "", false},
		"else": {string(fresh), "u-2", false},
	} {
		put(t, h, ca, tc.ca)
		n.opts.client = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(tc.uid)}})
		if same := n.ofThisCluster(t.Context(), state.Cluster); same != tc.same {
			t.Errorf("%s: the same cluster %v, want %v", name, same, tc.same)
		}
	}
}
