// SPDX-License-Identifier: Apache-2.0

package fileplan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TakeAway plans the removal of one file, or restores the file from before. It returns the reason
// if the file must stay.
func (p *Plan) TakeAway(step journal.Step, f journal.InstalledFile) (reason string, err error) {
	now, err := p.Node.Fingerprint(f.Path)
	if err != nil {
		return "", err
	}
	c := journal.Change{Step: step, Path: f.Path, Old: now, New: f.Was}
	switch {
	case now == nodefs.Absent:
		return "", nil
	case now != f.Now && c.Step == journal.StepServer:
		reason, err = p.setAside(f.Path, now)
	case now != f.Now:
		return "it was changed since the installation", nil
	}
	switch {
	case err != nil:
		return "", err
	case f.Backup == "":
		c.Remove = true
	default:
		if c.Data, err = p.Node.Read(f.Backup); err != nil {
			return "", err
		}
		c.Mode = nodefs.ModeOf(f.Was)
		c.New = nodefs.Fingerprint(c.Data, c.Mode)
	}
	p.Journal.Changes = append(p.Journal.Changes, c)
	return reason, nil
}

// setAside plans a copy of an edited server manifest, so that the edits are not
// lost. The manifest cannot stay in the static Pod directory: the kubelet would go
// on starting a server without its files, and would create an empty kubeconfig that
// every user of the node can read.
func (p *Plan) setAside(file, now string) (reason string, err error) {
	data, err := p.Node.Read(file)
	if err != nil {
		return "", err
	}
	name := journal.EditedDir + strings.TrimPrefix(journal.BackupName(file, now), journal.BackupDir)
	p.Directory(journal.EditedDir, 0o700)
	if !p.Node.Exists(name) {
		p.Journal.Changes = append(p.Journal.Changes, journal.Change{Step: journal.StepServer, Path: name, Mode: 0o600, Data: data,
			Old: nodefs.Absent, New: nodefs.Fingerprint(data, 0o600)})
	}
	return "it was changed since the installation, and is now " + name, nil
}

// KeepFor drops the planned removal of the needed files and directories. The
// argument who names the manifest that needs them. It returns what is left, with the reason.
func (p *Plan) KeepFor(who string, needed []string) (left []string) {
	keep := func(name string) bool {
		needs := slices.Contains(needed, path.Clean(name))
		if needs {
			left = append(left, fmt.Sprintf("%s: %s needs it", name, who))
		}
		return needs
	}
	p.Journal.Changes = slices.DeleteFunc(p.Journal.Changes, func(c journal.Change) bool { return c.Remove && keep(c.Path) })
	p.Journal.RemoveDirs = slices.DeleteFunc(p.Journal.RemoveDirs, keep)
	return left
}
