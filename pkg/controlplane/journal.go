// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Change is one file that a run creates, replaces or removes.
type Change struct {
	// Step is the part of the run that it belongs to; steps are applied in order.
	Step Step `json:"step"`
	// Path is the node's absolute path of the file.
	Path string `json:"path"`
	// Mode of the new file.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Data is the new content. It is in the staged file, not in the journal.
	Data []byte `json:"-"`
	// Remove means that the file is removed.
	Remove bool `json:"remove,omitempty"`
	// InPlace writes into the existing file, so that a bind mount of the file shows
	// the new content. A reader may see a part of it.
	InPlace bool `json:"inPlace,omitempty"`
	// Secret keeps the content out of diffs.
	Secret bool `json:"secret,omitempty"`
	// Old and New are fingerprints of the file before and after; empty for none.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Backup is the path of a copy of the earlier file, and BackupData is its
	// content.
	Backup     string `json:"backup,omitempty"`
	BackupData []byte `json:"-"`
}

// Step names a part of a run.
type Step string

// The steps, in the order of an installation. Each is complete, including its waits,
// before the next one starts.
const (
	StepPKI       Step = "certificates"
	StepEgress    Step = "egress-selector"
	StepServer    Step = "konnectivity-server"
	StepAPIServer Step = "kube-apiserver"
	StepKubeadm   Step = "kubeadm-config"
)

// Directory is a directory that a run creates.
type Directory struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
}

type phase string

const (
	// phasePreparing: new files are being staged next to old ones; nothing has
	// changed.
	phasePreparing phase = "preparing"
	// phaseApplying: files are being put in place. The run can be completed or rolled
	// back.
	phaseApplying phase = "applying"
	// phaseRollback: the run is being rolled back, and cannot be completed any more.
	phaseRollback phase = "rolling back"
	// phaseDone: everything is in place, only leftovers must be removed.
	phaseDone phase = "done"
)

// Operation is the command that a run executes.
type Operation string

// The operations.
const (
	OpInstall   Operation = "install"
	OpUninstall Operation = "uninstall"
	OpRenew     Operation = "renew"
)

// journal records what a run is about to do, before it does it.
type journal struct {
	Operation Operation `json:"operation"`
	Phase     phase     `json:"phase"`
	// Desired identifies the request, so that another run can determine whether
	// completing this one fulfils its own request.
	Desired string      `json:"desired"`
	Started time.Time   `json:"started"`
	Cluster clusterID   `json:"cluster,omitzero"`
	Steps   []Step      `json:"steps"`
	Dirs    []Directory `json:"dirs,omitempty"`
	// RemoveDirs are removed at the end if they are empty.
	RemoveDirs []string `json:"removeDirs,omitempty"`
	Changes    []Change `json:"changes"`
	// Wait is what to wait for.
	Wait waits `json:"wait"`
	// WasBroken: kube-apiserver was not ready when an uninstallation started, so the
	// run is not rolled back if kube-apiserver does not become ready either.
	WasBroken bool `json:"wasBroken,omitempty"`
	// KubeadmLater is to be removed from kubeadm's stored configuration once
	// kube-apiserver answers, which it did not when the run was planned.
	KubeadmLater *kubeadmState `json:"kubeadmLater,omitempty"`
	// Kubeadm is the change of kubeadm's stored configuration, nil for none.
	Kubeadm *kubeadmChange `json:"kubeadm,omitempty"`
	// KubeadmBegun: this run may have made that change. If it has not, a rollback
	// must keep the same change by another node.
	KubeadmBegun bool `json:"kubeadmBegun,omitempty"`
	// State is the state after the run; nil if nothing is installed then.
	State *State `json:"state,omitempty"`
}

const (
	journalFile = StateDir + "/journal.json"
	stateFile   = StateDir + "/state.json"
	lockFile    = StateDir + "/lock"
	backupDir   = StateDir + "/before"
	editedDir   = StateDir + "/edited"
)

// readJSON reads a file of the state directory; false if there is none.
func readJSON(h host, p string, into any) (bool, error) {
	data, err := h.read(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("%s: %w: it is damaged, or of another version of fairlead: use that version, or move the file away and run \"fairlead controlplane install\", which takes over what is in place", p, err)
	}
	return true, nil
}

// writeJSON replaces a file of the state directory atomically.
func writeJSON(h host, p string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	staged := beside(newPrefix, p)
	if err := h.write(staged, append(data, '\n'), 0o600, nil); err != nil {
		return err
	}
	if err := h.rename(staged, p); err != nil {
		return err
	}
	h.syncDir(filepath.Dir(p))
	return nil
}

// lock excludes other runs until the returned function is called, or the process
// ends. It creates the state directory.
func lock(h host) (unlock func(), err error) {
	made := !h.exists(StateDir)
	if err := os.MkdirAll(h.follow(StateDir), 0o700); err != nil {
		return nil, h.strip(err)
	}
	release, err := cluster.LockFile(h.path(lockFile))
	switch {
	case errors.Is(err, cluster.ErrBusy):
		return nil, ErrBusy
	case err != nil && made:
		_ = os.Remove(h.path(StateDir))
	}
	if err != nil {
		return nil, h.strip(err)
	}
	return func() { removeEmptyState(h); release() }, nil
}

// removeEmptyState removes the empty state directory if nothing is installed.
func removeEmptyState(h host) {
	if h.exists(stateFile) || h.exists(journalFile) {
		return
	}
	_ = os.Remove(h.path(lockFile))
	_ = os.Remove(h.path(backupDir))
	_ = os.Remove(h.path(StateDir))
}
