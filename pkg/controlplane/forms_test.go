// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

func daemonSet() *v1alpha1.Bundle {
	b := newBundle()
	b.Konnectivity.Server.Form = v1alpha1.FormDaemonSet
	return b
}

// TestStaticPodToDaemonSet checks that the manifest of the server that ran as a static Pod is
// removed, as that server would keep the ports, and that the run ends when the server has
// stopped. A rollback restores the manifest, and so does the first form.
func TestStaticPodToDaemonSet(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	install(t, root)
	before := snapshot(t, root)
	inBubble(t, func(t *testing.T) { staticPodToDaemonSet(t, root, before) })
}

func staticPodToDaemonSet(t *testing.T, root string, before map[string]string) {
	t.Helper()
	h := nodefs.Host{Root: root}
	w := startWorld(root, true, 300*time.Millisecond)
	defer w.end()
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Bundle = daemonSet()
	if r, err := Install(t.Context(), o); err != nil || !slices.Equal(r.Files, []string{serverFile}) {
		t.Errorf("%+v, %v; want the server's manifest removed", r, err)
	}
	w.settled(t)
	if h.Exists(serverFile) {
		t.Error("the server's manifest is still there")
	}
	if r, err := Install(t.Context(), o); err != nil || r.Changed {
		t.Errorf("again: %+v, %v", r, err)
	}
	if _, err := Install(t.Context(), w.options()); err != nil {
		t.Error(err)
	}
	w.settled(t)
	after := snapshot(t, root)
	delete(before, journal.StateFile) // it has a time
	delete(after, journal.StateFile)
	sameTrees(t, before, after)
	if _, err := Install(t.Context(), o); err != nil {
		t.Error(err)
	}
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Error(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestDaemonSetAfterEdits checks that a server's manifest that was edited is removed as well,
// and that a copy stays.
func TestDaemonSetAfterEdits(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	replaceIn(t, h, serverFile, "  containers:\n", "  # mine\n  containers:\n")
	edited, err := h.Read(serverFile)
	if err != nil {
		t.Fatal(err)
	}
	o := withBundle(root, daemonSet())
	notes := told(&o)
	mustInstall(t, o)
	_, name, _ := strings.Cut(notes.String(), journal.EditedDir)
	name, _, _ = strings.Cut(journal.EditedDir+name, "\n")
	if data, err := h.Read(name); err != nil || string(data) != string(edited) || h.Exists(serverFile) {
		t.Errorf("the copy: %v\n%s\nsaid:\n%s", err, data, notes)
	}
	mustUninstall(t, testOptions(root))
}

// TestDaemonSetLeavesForeignServer checks that a manifest which fairlead did not write stays.
func TestDaemonSetLeavesForeignServer(t *testing.T) {
	t.Parallel()
	reference(t)
	root := testNode(t)
	h := nodefs.Host{Root: root}
	_, manifest, _ := strings.Cut(installed[serverFile], "\n")
	put(t, h, serverFile, manifest)
	mustInstall(t, testOptions(root))
	mustInstall(t, withBundle(root, daemonSet()))
	if !h.Exists(serverFile) {
		t.Error("the manifest is gone")
	}
}

// TestAgentsNeverReachDaemonSet checks that kube-apiserver keeps its direct connections if no
// agent connects to a server that is not a static Pod.
func TestAgentsNeverReachDaemonSet(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o := agentOptions(root, daemonSet(), func() error { return errors.New("no connection to any proxy agent") })
	o.Timeout = 50 * time.Millisecond
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "no agent has connected") {
		t.Errorf("%v, want ErrRolledBack and the reason", err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// agentOptions are for a cluster with agents. The argument ready is called for each
// request for the server's readiness.
func agentOptions(root string, b *v1alpha1.Bundle, ready func() error) Options {
	o := withBundle(root, b)
	o.client = fake.NewClientset(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: o.Bundle.Namespace, Name: konnectivity.AgentName},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1}})
	o.poll = time.Millisecond
	o.health = func(url string) error {
		if strings.HasPrefix(url, "http://") && strings.HasSuffix(url, "/readyz") {
			return ready()
		}
		return nil
	}
	return o
}

// TestWaitForAgent checks that kube-apiserver is switched, or restarted, only after an
// agent has connected to the server, in whatever form that runs.
func TestWaitForAgent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, to *v1alpha1.Bundle }{
		"static Pod":       {nil, newBundle()},
		"another protocol": {newBundle(), httpConnect()},
		"DaemonSet":        {nil, daemonSet()},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			h := nodefs.Host{Root: root}
			if tc.from != nil {
				mustInstall(t, withBundle(root, tc.from))
			}
			before, err := h.Read(apiServerFile)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			o := agentOptions(root, tc.to, func() error {
				if now, err := h.Read(apiServerFile); err != nil || string(now) != string(before) {
					t.Errorf("kube-apiserver was changed before an agent has connected: %v", err)
				}
				if asked++; asked < 3 {
					return errors.New("no connection to any proxy agent")
				}
				return nil
			})
			r, err := Install(t.Context(), o)
			if err != nil || asked != 3 || !slices.Contains(r.Files, apiServerFile) {
				t.Errorf("%+v, %v, and the server was asked %d times", r, err, asked)
			}
		})
	}
}
