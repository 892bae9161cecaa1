// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"fmt"
)

// revertEditedManifest rolls back kube-apiserver's manifest after another program
// or a person has changed it during the run. It keeps their change, removes what
// this run added, and restores what an earlier installation had added. Only after
// that may the files be removed that the manifest names.
func (t *transaction) revertEditedManifest(c Change, now string) error {
	if now == absent {
		return fmt.Errorf("%s %w: it is not there any more, and what it needs stays until it is back", c.Path, errEdited)
	}
	edited, err := t.read(c.Path)
	if err != nil {
		return err
	}
	data, err := t.withoutRun(edited)
	if err != nil {
		return fmt.Errorf("%s %w, so what it needs stays: %w", c.Path, errEdited, err)
	}
	pod, err := decodePod(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	if i := apiServerIndex(pod); i >= 0 {
		program := programOf(pod.Spec.Containers[i])
		if old := t.Wait.OldAPIServer; old != nil {
			program.Health, program.Without = old.Health, old.Without
		}
		t.Wait.OldAPIServer = program
	}
	if name := t.stillNamed(pod); name != "" {
		return fmt.Errorf("%s %w and still names %s, so what it needs stays: take that out of the manifest", c.Path, errEdited, name)
	}
	if bytes.Equal(data, edited) {
		return nil
	}
	staged := beside(newPrefix, c.Path)
	if err := t.write(staged, data, modeOf(now), t.owner(c.Path)); err != nil {
		return err
	}
	return t.rename(staged, c.Path)
}

// withoutRun returns a manifest with this run's additions replaced by those of
// the state before the run. The state file is the one from before until a run is
// committed.
func (t *transaction) withoutRun(manifest []byte) ([]byte, error) {
	var err error
	if t.State != nil {
		if manifest, err = RemoveFromManifest(manifest, t.State.Manifest); err != nil {
			return nil, err
		}
	}
	before := &State{}
	found, err := readJSON(t.host, stateFile, before)
	if err != nil || !found || before.Manifest.Empty() {
		return manifest, err
	}
	manifest, _, err = AddToManifest(manifest, before.Bundle)
	return manifest, err
}

// halfWritten reports whether a file that is written in place is as a kill may
// have left it: every byte is that of the old or of the new file.
func (t *transaction) halfWritten(c Change) bool {
	if !c.InPlace {
		return false
	}
	var texts [3][]byte
	for i, name := range []string{c.Path, beside(oldPrefix, c.Path), beside(newPrefix, c.Path)} {
		var err error
		if texts[i], err = t.read(name); err != nil {
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
