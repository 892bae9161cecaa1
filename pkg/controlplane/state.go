package controlplane

import (
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// State is what an installation has left on the node, so that it can be taken
// away again.
type State struct {
	// Version of fairlead that installed, and when.
	Version   string    `json:"version"`
	Installed time.Time `json:"installed"`
	// Cluster in which that was.
	Cluster clusterID `json:"cluster,omitzero"`
	// Bundle as it was installed, with all defaults.
	Bundle *v1alpha1.Bundle `json:"bundle"`
	// ServerOnly: kube-apiserver does not use the tunnel yet.
	ServerOnly bool `json:"serverOnly,omitempty"`
	// Files that were made or replaced.
	Files []InstalledFile `json:"files"`
	// Dirs that were made, outer ones first.
	Dirs []string `json:"dirs,omitempty"`
	// Manifest is what kube-apiserver's manifest got.
	Manifest Additions `json:"manifest"`
	// Kubeadm is what kubeadm's stored configuration got; nil for nothing.
	Kubeadm *kubeadmState `json:"kubeadm,omitempty"`
}

// InstalledFile is a file of the installation.
type InstalledFile struct {
	Path string `json:"path"`
	// Now is the fingerprint as installed.
	Now string `json:"now"`
	// Backup is the file's copy from before in the state directory; empty for one
	// that was not there. Was is its fingerprint.
	Backup string `json:"backup,omitempty"`
	Was    string `json:"was,omitempty"`
}

// kubeadmState is the stored ClusterConfiguration's part.
type kubeadmState struct {
	kubeadmChange
	Additions clusterAdditions `json:"additions"`
	// Shared: another control plane node had put all of it there already.
	Shared bool `json:"shared,omitempty"`
}

// onlyKubeadm tells whether an uninstallation has left nothing but kubeadm's part,
// which takes an API server that answers.
func (s *State) onlyKubeadm() bool {
	return s != nil && len(s.Files) == 0 && s.Manifest.Empty() && s.Kubeadm != nil
}

func (s *State) file(p string) *InstalledFile {
	if s == nil {
		return nil
	}
	for i := range s.Files {
		if s.Files[i].Path == p {
			return &s.Files[i]
		}
	}
	return nil
}

// set records a file, keeping what was there before the first installation.
func (s *State) set(f InstalledFile) {
	if known := s.file(f.Path); known != nil {
		*known = f
		return
	}
	s.Files = append(s.Files, f)
}

// clone is deep enough for set.
func (s *State) clone() *State {
	out := *s
	out.Files = append([]InstalledFile(nil), s.Files...)
	out.Dirs = append([]string(nil), s.Dirs...)
	return &out
}

// backupName is where a file's copy lies, in the state directory and not beside
// the file: the kubelet runs what is in its directory. Another content has another
// name, so that a run that goes back loses no earlier copy.
func backupName(p, fingerprint string) string {
	return backupDir + "/" + strings.ReplaceAll(strings.Trim(p, "/"), "/", "_") + "-" + fingerprint[:12]
}

// InstalledBundle is the bundle of the installation below root, or that the node
// was made from; nil if there is none.
func InstalledBundle(root string) (*v1alpha1.Bundle, error) {
	n := newNode(Options{Root: root}.defaulted())
	s, err := n.readState()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return providedBundle(n.host)
	}
	return s.Bundle, nil
}
