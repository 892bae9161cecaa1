// SPDX-License-Identifier: Apache-2.0

// Package fileplan collects the changes of files that a run will make. It changes nothing itself.
// Start at [Plan].
package fileplan

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Plan is what a run will change, with every reason why it would fail.
type Plan struct {
	// Node has the files.
	Node nodefs.Host
	// Journal receives the changes.
	Journal *journal.Journal
	// Before is the state that an earlier run recorded, or nil. After is the state to record.
	Before, After *journal.State
	// Notef receives messages that a user should know but need not act on.
	Notef func(format string, args ...any)

	errs []error
}

// File is a file that should be on the node.
type File struct {
	Step   journal.Step
	Path   string
	Mode   fs.FileMode
	Secret bool
	// InPlace writes into an existing file, which a Pod has mounted as a single file: such a
	// mount keeps the old inode.
	InPlace bool
	// Data is the content. If Make is set, it produces the content on demand, because
	// that is expensive.
	Data []byte
	Make func() ([]byte, error)
	// Good returns nil if an existing file is usable, or else the reason why not.
	Good func(data []byte) error
	// Advice tells the user what to do about an unusable file.
	Advice string
}

// Fail records a reason against the run; nil is none.
func (p *Plan) Fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// Err returns every reason against the run, one per line, or nil.
func (p *Plan) Err() error { return errors.Join(p.errs...) }

// Want plans one file. It creates a missing file, replaces an earlier version that
// fairlead installed, keeps a usable file, and refuses to overwrite a file that
// another program or a person wrote.
func (p *Plan) Want(w File) {
	existing, err := p.Node.Read(w.Path)
	if errors.Is(err, fs.ErrNotExist) {
		p.parents(w.Path)
		p.Put(w, nodefs.Absent, nil)
		return
	}
	now, fpErr := p.Node.Fingerprint(w.Path)
	if err != nil || fpErr != nil {
		p.Fail(fmt.Errorf("%s: %w: %s", w.Path, errors.Join(err, fpErr), w.Advice))
		return
	}
	known := p.Before.File(w.Path)
	reason := w.Good(existing)
	switch {
	case reason == nil && w.Secret:
		p.Tighten(w.Path)
	case reason == nil:
	case known != nil && known.Now == now, nodefs.IsBlank(existing):
		p.Put(w, now, existing)
	case known != nil:
		p.Fail(fmt.Errorf("%s was changed since fairlead installed it (%w): undo that, or move the file away", w.Path, reason))
	default:
		p.Fail(fmt.Errorf("%s exists, fairlead did not write it, and its content does not fit (%w): %s", w.Path, reason, w.Advice))
	}
}

// Put plans to write a file and to record it in the state. The arguments old and existing are the
// fingerprint and the content of the file that is there.
func (p *Plan) Put(w File, old string, existing []byte) {
	if w.Make != nil {
		var err error
		if w.Data, err = w.Make(); err != nil {
			p.Fail(fmt.Errorf("%s: %w", w.Path, err))
			return
		}
	}
	c := journal.Change{Step: w.Step, Path: w.Path, Mode: w.Mode, Data: w.Data, InPlace: w.InPlace && old != nodefs.Absent, Secret: w.Secret,
		Old: old, New: nodefs.Fingerprint(w.Data, w.Mode)}
	f := journal.InstalledFile{Path: w.Path, Now: c.New}
	switch known := p.Before.File(w.Path); {
	case known != nil && (old == known.Now || old == nodefs.Absent):
		f.Backup, f.Was = known.Backup, known.Was
	case old != nodefs.Absent:
		// kubeadm may also have written the file again since the last installation.
		// An older backup may belong to another key, or to another cluster.
		f.Backup, f.Was = journal.BackupName(w.Path, old), old
		c.Backup, c.BackupData = f.Backup, existing
	}
	p.Journal.Changes = append(p.Journal.Changes, c)
	p.After.Set(f)
}

// PutManifest plans to write kube-apiserver's manifest; base is the text that an uninstallation
// restores.
func (p *Plan) PutManifest(file string, data, base []byte) {
	now, mode, err := p.Node.Present(file)
	if err != nil {
		p.Fail(err)
		return
	}
	c := journal.Change{Step: journal.StepAPIServer, Path: file, Mode: mode, Data: data, Old: now, New: nodefs.Fingerprint(data, mode)}
	f := journal.InstalledFile{Path: file, Now: c.New, Was: nodefs.Fingerprint(base, mode)}
	f.Backup = journal.BackupName(file, f.Was)
	// kubeadm or a person may have rewritten the manifest since the last
	// installation. An uninstallation restores the manifest that is there now.
	if known := p.Before.File(file); known != nil && known.Was == f.Was {
		f.Backup = known.Backup
	} else {
		c.Backup, c.BackupData = f.Backup, base
	}
	p.Journal.Changes = append(p.Journal.Changes, c)
	p.After.Set(f)
}

// Create plans a file that is known not to exist.
func (p *Plan) Create(file string, data []byte, mode fs.FileMode, secret bool) {
	p.parents(file)
	p.Put(File{Step: journal.StepPKI, Path: file, Mode: mode, Data: data, Secret: secret}, nodefs.Absent, nil)
}

// Replace plans new content for an existing file. The mode stays, but a secret loses
// the permissions of group and others. It returns false if the file cannot be
// replaced.
func (p *Plan) Replace(step journal.Step, file string, data []byte, secret bool) bool {
	now, err := p.Node.Fingerprint(file)
	if err != nil {
		p.Fail(err)
		return false
	}
	if now == nodefs.Absent {
		p.Fail(fmt.Errorf("%s does not exist: install first", file))
		return false
	}
	mode := nodefs.ModeOf(now)
	if secret {
		mode = nodefs.OnlyOwner(mode)
	}
	c := journal.Change{Step: step, Path: file, Mode: mode, Data: data, Secret: secret, Old: now, New: nodefs.Fingerprint(data, mode)}
	p.Journal.Changes = append(p.Journal.Changes, c)
	if known := p.After.File(file); known != nil {
		known.Now = c.New
	}
	return true
}

// Tighten removes the permissions of group and others on a private key. The change is
// made in place: the server's Pod has the kubeconfig mounted as a single file, and a
// file bind mount keeps the old inode.
func (p *Plan) Tighten(file string) {
	data, err := p.Node.Read(file)
	if err != nil {
		return // the code that needs the file has reported this
	}
	now, mode, err := p.Node.Present(file)
	if err != nil || !nodefs.IsOpen(mode) {
		p.Fail(err)
		return
	}
	p.Notef("%s has mode %04o, so other users of this node could read its private key: it gets %04o; "+
		"if that may have happened, issue it again (\"fairlead certs renew\")", file, mode, nodefs.OnlyOwner(mode))
	c := journal.Change{Step: journal.StepPKI, Path: file, Mode: nodefs.OnlyOwner(mode), Data: data, InPlace: true, Secret: true,
		Old: now, New: nodefs.Fingerprint(data, nodefs.OnlyOwner(mode))}
	p.Journal.Changes = append(p.Journal.Changes, c)
	if known := p.After.File(file); known != nil {
		known.Now = c.New
	}
}

// parents plans the directories that a file needs.
func (p *Plan) parents(file string) {
	p.Directory(path.Dir(file), 0o755)
}

// Directory plans a directory, unless it exists, and the directories above it.
func (p *Plan) Directory(dir string, mode fs.FileMode) {
	known := slices.ContainsFunc(p.Journal.Dirs, func(d journal.Directory) bool { return d.Path == dir })
	if known || dir == "/" || p.Node.Exists(dir) {
		return
	}
	p.Directory(path.Dir(dir), 0o755)
	p.Journal.Dirs = append(p.Journal.Dirs, journal.Directory{Path: dir, Mode: mode})
}
