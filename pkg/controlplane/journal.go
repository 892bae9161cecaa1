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

// Change is one file that a run makes, replaces or removes.
type Change struct {
	// Step is the part of the run to which it belongs; steps are made in order.
	Step Step `json:"step"`
	// Path is absolute, as the node names it.
	Path string `json:"path"`
	// Mode of the new file.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Data is the new content. It is in the staged file, not in the journal.
	Data []byte `json:"-"`
	// Remove takes the file away.
	Remove bool `json:"remove,omitempty"`
	// InPlace writes into the file that is there, so that a mount of the file shows
	// the new content. A reader may see half of it.
	InPlace bool `json:"inPlace,omitempty"`
	// Secret keeps the content out of diffs.
	Secret bool `json:"secret,omitempty"`
	// Old and New are fingerprints of the file before and after; empty for none.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Backup is where a copy of the file from before goes, BackupData its content.
	Backup     string `json:"backup,omitempty"`
	BackupData []byte `json:"-"`
}

// Step names a part of a run.
type Step string

// The steps, in the order of an installation. Each is complete, with its waits,
// before the next one begins.
const (
	StepPKI       Step = "certificates"
	StepEgress    Step = "egress-selector"
	StepServer    Step = "konnectivity-server"
	StepAPIServer Step = "kube-apiserver"
	StepKubeadm   Step = "kubeadm-config"
)

// Directory is one that a run makes.
type Directory struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
}

type phase string

const (
	// phasePreparing: new files are being laid beside old ones; nothing has changed.
	phasePreparing phase = "preparing"
	// phaseApplying: files take their places. It can go on or back.
	phaseApplying phase = "applying"
	// phaseRollback: it goes back, and only back.
	phaseRollback phase = "rolling back"
	// phaseDone: all is in place, only leftovers remain to be removed.
	phaseDone phase = "done"
)

// Operation is what a run does.
type Operation string

// The operations.
const (
	OpInstall   Operation = "install"
	OpUninstall Operation = "uninstall"
	OpRenew     Operation = "renew"
)

// journal says what a run is about to do, before it does it.
type journal struct {
	Operation Operation `json:"operation"`
	Phase     phase     `json:"phase"`
	// Desired identifies what the run was asked for, so that another one can tell
	// whether going on is what it was asked for, too.
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
	// WasBroken: kube-apiserver was not ready when an uninstallation began, so that
	// it is not put back if it does not get ready either.
	WasBroken bool `json:"wasBroken,omitempty"`
	// KubeadmLater is to be taken out of kubeadm's stored configuration once
	// kube-apiserver answers, as it did not when the run was planned.
	KubeadmLater *kubeadmState `json:"kubeadmLater,omitempty"`
	// Kubeadm is the change of kubeadm's stored configuration, nil for none.
	Kubeadm *kubeadmChange `json:"kubeadm,omitempty"`
	// KubeadmBegun: this run may have made it. Going back, what another node has made
	// is none of its business.
	KubeadmBegun bool `json:"kubeadmBegun,omitempty"`
	// State is what holds when the run is done; nil for nothing installed.
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

// writeJSON replaces a file of the state directory in one step.
func writeJSON(h host, p string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	staged := beside(newPrefix, p)
	if err := h.write(staged, append(data, '\n'), 0o600, nil); err != nil {
		return err
	}
	if err := os.Rename(h.path(staged), h.path(p)); err != nil {
		return h.strip(err)
	}
	h.syncDir(filepath.Dir(p))
	return nil
}

// lock keeps other runs away until the returned function is called, or the
// process ends. It makes the state directory.
func lock(h host) (unlock func(), err error) {
	made := !h.exists(StateDir)
	if err := os.MkdirAll(h.path(StateDir), 0o700); err != nil {
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

// removeEmptyState leaves no trace where nothing is installed.
func removeEmptyState(h host) {
	if h.exists(stateFile) || h.exists(journalFile) {
		return
	}
	_ = os.Remove(h.path(lockFile))
	_ = os.Remove(h.path(backupDir))
	_ = os.Remove(h.path(StateDir))
}
