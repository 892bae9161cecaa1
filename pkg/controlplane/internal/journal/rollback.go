// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// revertEditedManifest rolls back kube-apiserver's manifest after another program
// or a person has changed it during the run. It keeps their change, removes what
// this run added, and restores what an earlier installation had added. Only after
// that may the files be removed that the manifest names.
func (t *Transaction) revertEditedManifest(c Change, now string) error {
	if now == nodefs.Absent {
		return fmt.Errorf("%s %w: the manifest was deleted; its files are kept until it is restored", c.Path, ErrEdited)
	}
	edited, err := t.Read(c.Path)
	if err != nil {
		return err
	}
	data, err := t.withoutRun(edited)
	if err != nil {
		return fmt.Errorf("%s %w, so what it needs stays: %w", c.Path, ErrEdited, err)
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	if i := manifests.APIServerIndex(pod); i >= 0 {
		program := kubelet.ProgramOf(pod.Spec.Containers[i])
		if old := t.Wait.OldAPIServer; old != nil {
			program.Health, program.Without = old.Health, old.Without
		}
		t.Wait.OldAPIServer = program
	}
	if name := t.stillNamed(pod); name != "" {
		return fmt.Errorf("%s %w and still names %s, so what it needs stays: take that out of the manifest", c.Path, ErrEdited, name)
	}
	if bytes.Equal(data, edited) {
		return nil
	}
	staged := nodefs.Beside(nodefs.NewPrefix, c.Path)
	if err := t.Write(staged, data, nodefs.ModeOf(now), t.Owner(c.Path)); err != nil {
		return err
	}
	return t.Rename(staged, c.Path)
}

// withoutRun returns a manifest with this run's additions replaced by those of
// the state before the run. The state file is the one from before until a run is
// committed.
func (t *Transaction) withoutRun(manifest []byte) ([]byte, error) {
	var err error
	if t.State != nil {
		if manifest, err = manifests.Remove(manifest, t.State.Manifest); err != nil {
			return nil, err
		}
	}
	before := &State{}
	found, err := ReadJSON(t.Host, StateFile, before)
	if err != nil || !found || before.Manifest.Empty() {
		return manifest, err
	}
	manifest, _, err = manifests.Add(manifest, before.Bundle)
	return manifest, err
}

// halfWritten reports whether a file that is written in place is as a kill may
// have left it: every byte is that of the old or of the new file.
func (t *Transaction) halfWritten(c Change) bool {
	if !c.InPlace {
		return false
	}
	var texts [3][]byte
	for i, name := range []string{c.Path, nodefs.Beside(nodefs.OldPrefix, c.Path), nodefs.Beside(nodefs.NewPrefix, c.Path)} {
		var err error
		if texts[i], err = t.Read(name); err != nil {
			return false
		}
	}
	now, before, after := texts[0], texts[1], texts[2]
	if len(now) < min(len(before), len(after)) || len(now) > max(len(before), len(after)) {
		return false
	}
	for i, b := range now {
		if (i >= len(before) || b != before[i]) && (i >= len(after) || b != after[i]) {
			return false
		}
	}
	return true
}

// mounted reports whether the current kube-apiserver manifest mounts a directory,
// if this run changes that manifest. The volume may have been renamed since the
// installation.
func (t *Transaction) mounted(dir string) bool {
	i := slices.IndexFunc(t.Changes, func(c Change) bool { return c.Step == StepAPIServer })
	if i < 0 {
		return false
	}
	data, err := t.Read(t.Changes[i].Path)
	if err != nil {
		return false
	}
	pod, err := manifests.Decode(data)
	return err == nil && slices.Contains(manifests.MountsOf(pod), path.Clean(dir))
}

// stillNamed returns a file that a rollback of this run would remove although the
// manifest still names it, or "".
func (t *Transaction) stillNamed(pod *corev1.Pod) string {
	named := manifests.NamedBy(pod)
	for _, c := range t.Changes {
		if c.Old == nodefs.Absent && slices.Contains(named, c.Path) {
			return c.Path
		}
	}
	return ""
}
