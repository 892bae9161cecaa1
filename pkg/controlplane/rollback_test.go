// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const (
	apiServerFile = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	serverFile    = "/etc/kubernetes/manifests/konnectivity-server.yaml"
)

// TestEditDuringRollback edits kube-apiserver's manifest while a run waits, and
// then makes the wait fail. The edit stays, the run's additions are removed, and
// no file is removed that the manifest still names.
func TestEditDuringRollback(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	before := snapshot(t, root)
	o := failingOptions(root, func() {
		replaceIn(t, h, apiServerFile, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4 # loud\n")
	})
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Errorf("%v, want ErrRolledBack", err)
	}
	replaceIn(t, h, apiServerFile, "    - --v=4 # loud\n", "")
	sameTrees(t, before, snapshot(t, root))
}

// TestEditDuringRollbackOfSecondRun checks that a rollback restores the first
// installation's additions in the edited manifest.
func TestEditDuringRollbackOfSecondRun(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	o := failingOptions(root, func() {
		replaceIn(t, h, apiServerFile, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4\n")
	})
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: "/run/konnectivity/server.socket"}}}}
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("%v, want ErrRolledBack", err)
	}
	data, err := h.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, add, err := manifests.Add(data, v1alpha1.New()); err != nil || !add.Empty() || strings.Contains(string(data), "/run/konnectivity") {
		t.Errorf("%v, %+v is missing in\n%s", err, add, data)
	}
	uninstall(t, root)
	replaceIn(t, h, apiServerFile, "    - --v=4\n", "")
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestManifestGoneDuringRollback moves the manifest away during a rollback. Every
// file that it names is still there when it is moved back, and the next run then
// finishes.
func TestManifestGoneDuringRollback(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	away := h.Path("/etc/kubernetes/kube-apiserver.yaml")
	o := failingOptions(root, func() {
		if err := os.Rename(h.Path(apiServerFile), away); err != nil {
			t.Error(err)
		}
	})
	if _, err := Install(t.Context(), o); err == nil || errors.Is(err, ErrRolledBack) {
		t.Errorf("%v, want an error that says what could not be put back", err)
	}
	for _, f := range []string{serverFile, v1alpha1Egress, v1alpha1.DefaultServerKubeconfig} {
		if !h.Exists(f) {
			t.Errorf("%s is gone, and the manifest that was moved away names it", f)
		}
	}
	if err := os.Rename(away, h.Path(apiServerFile)); err != nil {
		t.Fatal(err)
	}
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestRollbackEnds checks that the first rollback attempt reports a file that
// another program changed, and that the second attempt leaves the file and
// finishes.
func TestRollbackEnds(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	o := failingOptions(root, func() { put(t, h, v1alpha1Egress, "# mine\n") })
	_, err := Install(t.Context(), o)
	if err == nil || !errors.Is(err, journal.ErrEdited) || !strings.Contains(err.Error(), v1alpha1Egress) {
		t.Fatalf("%v, want the edited file named", err)
	}
	var notes strings.Builder
	o = testOptions(root)
	o.Notef = func(format string, args ...any) { notes.WriteString(fmt.Sprintf(format+"\n", args...)) }
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notes.String(), v1alpha1Egress) {
		t.Errorf("the file that is left is not named:\n%s", notes.String())
	}
	if data, err := h.Read(v1alpha1Egress); err != nil || string(data) != "# mine\n" {
		t.Errorf("%q, %v", data, err)
	}
	if h.Exists(StateDir) {
		t.Error("the journal is still there")
	}
}

// TestRenewLeavesForeignKubeconfig checks that neither a renewal nor its rollback
// overwrites a kubeconfig that another program writes during the preparation.
func TestRenewLeavesForeignKubeconfig(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	o := RenewOptions{Options: testOptions(root)}
	o.after = func(point string) {
		if point == "journal applying" {
			put(t, h, v1alpha1.DefaultServerKubeconfig, "# mine\n")
		}
	}
	if _, err := Renew(t.Context(), o); !errors.Is(err, journal.ErrEdited) {
		t.Errorf("%v, want errEdited", err)
	}
	if data, err := h.Read(v1alpha1.DefaultServerKubeconfig); err != nil || string(data) != "# mine\n" {
		t.Errorf("another program's file was overwritten (%v)", err)
	}
}

// TestRollbackTellsWhatItDoes checks that a run restores kube-apiserver's
// manifest, and waits for it, only if the run had reached that step.
func TestRollbackTellsWhatItDoes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fails string
		want  bool
	}{{"proxy-server", false}, {apiServer, true}} {
		t.Run(test.fails, func(t *testing.T) {
			root := testNode(t)
			steps, waited, failed := titles{}, false, false
			o := testOptions(root)
			o.Progress = &steps
			o.waits = func(_ context.Context, p *kubelet.Program) error {
				waited = waited || failed && p.Name == apiServer
				if p.Name == test.fails && !failed {
					failed = true
					return errors.New("no answer")
				}
				return nil
			}
			if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
				t.Fatalf("%v, want ErrRolledBack", err)
			}
			told := slices.Contains(steps, "Putting back kube-apiserver's manifest")
			if told != test.want || waited != test.want {
				t.Errorf("the rollback step was reported: %v, waited for: %v; want %v; steps %q", told, waited, test.want, steps)
			}
			sameTrees(t, snapshot(t, pristine), snapshot(t, root))
		})
	}
}

// titles is a Progress that records the steps that were started.
type titles []string

func (s *titles) Begin(step string)   { *s = append(*s, step) }
func (*titles) Detail(string, ...any) {}
func (*titles) End(string, error)     {}

// failingOptions make the wait for kube-apiserver fail once, after another program
// has made a change.
func failingOptions(root string, change func()) Options {
	o, failed := testOptions(root), false
	o.waits = func(_ context.Context, p *kubelet.Program) error {
		if p.Name == apiServer && !failed {
			failed = true
			change()
			return errors.New("no answer")
		}
		return nil
	}
	return o
}

// TestDirectoryInPlaceOfFile checks that an empty directory that a container runtime has made
// in the place of a removed kubeconfig is in the way of neither an installation nor a rollback.
func TestDirectoryInPlaceOfFile(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	before := snapshot(t, root)
	o := failingOptions(root, func() {
		remove(t, h, v1alpha1.DefaultServerKubeconfig)
		mkdir(t, h, v1alpha1.DefaultServerKubeconfig)
	})
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("%v, want ErrRolledBack", err)
	}
	sameTrees(t, before, snapshot(t, root))
	mkdir(t, h, v1alpha1.DefaultServerKubeconfig)
	install(t, root)
	if data, err := h.Read(v1alpha1.DefaultServerKubeconfig); err != nil || !strings.Contains(string(data), "kind: Config") {
		t.Errorf("the kubeconfig is %q, %v", data, err)
	}
	uninstall(t, root)
	sameTrees(t, before, snapshot(t, root))
}
