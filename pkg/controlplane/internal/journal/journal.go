// SPDX-License-Identifier: Apache-2.0

// Package journal changes files of a node as a transaction that a kill at any point leaves
// repairable: a [Journal] on the disk records what a run is about to do, and a [Transaction]
// applies it or rolls it back. A [State] records what an installation has left.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/internal/lockfile"
)

// Dir is where this package keeps its journal, its state and backups of the
// files that it changed. Only root has access. It is not in the static Pod
// directory, because the kubelet runs every file there.
const Dir = "/etc/kubernetes/fairlead"

// ErrBusy is returned while another run is active on this node.
var ErrBusy = errors.New("another fairlead controlplane is at work on this node: try again when it has ended")

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

// Phase is how far a run has got.
type Phase string

// The phases.
const (
	// PhasePreparing: new files are being staged next to old ones; nothing has
	// changed.
	PhasePreparing Phase = "preparing"
	// PhaseApplying: files are being put in place. The run can be completed or rolled
	// back.
	PhaseApplying Phase = "applying"
	// PhaseRollback: the run is being rolled back, and cannot be completed any more.
	PhaseRollback Phase = "rolling back"
	// PhaseDone: everything is in place, only leftovers must be removed.
	PhaseDone Phase = "done"
)

// Operation is the command that a run executes.
type Operation string

// The operations.
const (
	OpInstall   Operation = "install"
	OpUninstall Operation = "uninstall"
	OpRenew     Operation = "renew"
)

// Journal records what a run is about to do, before it does it.
type Journal struct {
	Operation Operation `json:"operation"`
	Phase     Phase     `json:"phase"`
	// Desired identifies the request, so that another run can determine whether
	// completing this one fulfills its own request.
	Desired string      `json:"desired"`
	Started time.Time   `json:"started"`
	Cluster ClusterID   `json:"cluster,omitzero"`
	Steps   []Step      `json:"steps"`
	Dirs    []Directory `json:"dirs,omitempty"`
	// RemoveDirs are removed at the end if they are empty.
	RemoveDirs []string `json:"removeDirs,omitempty"`
	Changes    []Change `json:"changes"`
	// Wait is what to wait for.
	Wait Waits `json:"wait"`
	// WasBroken: kube-apiserver was not ready when an uninstallation started, so the
	// run is not rolled back if kube-apiserver does not become ready either.
	WasBroken bool `json:"wasBroken,omitempty"`
	// KubeadmLater is to be removed from kubeadm's stored configuration once
	// kube-apiserver answers, which it did not when the run was planned.
	KubeadmLater *KubeadmState `json:"kubeadmLater,omitempty"`
	// Kubeadm is the change of kubeadm's stored configuration, nil for none.
	Kubeadm *KubeadmChange `json:"kubeadm,omitempty"`
	// KubeadmBegun: this run may have made that change. If it has not, a rollback
	// must keep the same change by another node.
	KubeadmBegun bool `json:"kubeadmBegun,omitempty"`
	// State is the state after the run; nil if nothing is installed then.
	State *State `json:"state,omitempty"`
}

// Waits holds the programs before and after a run; nil for none.
type Waits struct {
	OldServer    *kubelet.Program `json:"oldServer,omitempty"`
	NewServer    *kubelet.Program `json:"newServer,omitempty"`
	OldAPIServer *kubelet.Program `json:"oldAPIServer,omitempty"`
	NewAPIServer *kubelet.Program `json:"newAPIServer,omitempty"`
	// Server and APIServer distinguish processes with the same flags.
	Server    kubelet.Origin `json:"server,omitzero"`
	APIServer kubelet.Origin `json:"apiServer,omitzero"`
	// Mirrored: the API server showed kube-apiserver's mirror Pod when the step
	// began.
	Mirrored bool `json:"mirrored,omitempty"`
}

// Of returns what a step waits for: the programs before and after, and how to
// distinguish their processes. It returns nils for a step that waits for nothing.
func (w *Waits) Of(step Step) (old, fresh *kubelet.Program, o *kubelet.Origin) {
	switch step {
	case StepServer:
		return w.OldServer, w.NewServer, &w.Server
	case StepAPIServer:
		return w.OldAPIServer, w.NewAPIServer, &w.APIServer
	}
	return nil, nil, nil
}

// Files and directories of Dir.
const (
	File      = Dir + "/journal.json"
	StateFile = Dir + "/state.json"
	lockFile  = Dir + "/lock"
	BackupDir = Dir + "/before"
	EditedDir = Dir + "/edited"
)

// ReadJSON reads a file of the state directory; false if there is none.
func ReadJSON(h nodefs.Host, p string, into any) (bool, error) {
	data, err := h.Read(p)
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
func writeJSON(h nodefs.Host, p string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	staged := nodefs.Beside(nodefs.NewPrefix, p)
	if err := h.Write(staged, append(data, '\n'), 0o600, nil); err != nil {
		return err
	}
	if err := h.Rename(staged, p); err != nil {
		return err
	}
	h.SyncDir(filepath.Dir(p))
	return nil
}

// Lock excludes other runs until the returned function is called, or the process
// ends. It creates the state directory.
func Lock(h nodefs.Host) (unlock func(), err error) {
	made := !h.Exists(Dir)
	if err := os.MkdirAll(h.Follow(Dir), 0o700); err != nil {
		return nil, h.Strip(err)
	}
	release, err := lockfile.Lock(h.Path(lockFile))
	switch {
	case errors.Is(err, lockfile.ErrBusy):
		return nil, ErrBusy
	case err != nil && made:
		_ = os.Remove(h.Path(Dir))
	}
	if err != nil {
		return nil, h.Strip(err)
	}
	return func() { removeEmptyState(h); release() }, nil
}

// removeEmptyState removes the empty state directory if nothing is installed.
func removeEmptyState(h nodefs.Host) {
	if h.Exists(StateFile) || h.Exists(File) {
		return
	}
	_ = os.Remove(h.Path(lockFile))
	_ = os.Remove(h.Path(BackupDir))
	_ = os.Remove(h.Path(Dir))
}
