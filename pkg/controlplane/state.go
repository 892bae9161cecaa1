// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// State is what an installation has left on the node, so that it can be removed
// again.
type State struct {
	// Version of fairlead that installed, and the time of the installation.
	Version   string    `json:"version"`
	Installed time.Time `json:"installed"`
	// Cluster is the node's cluster at that time.
	Cluster clusterID `json:"cluster,omitzero"`
	// Bundle is the installed bundle, with all defaults.
	Bundle *v1alpha1.Bundle `json:"bundle"`
	// ServerOnly: kube-apiserver does not use the tunnel yet.
	ServerOnly bool `json:"serverOnly,omitempty"`
	// Files were created or replaced.
	Files []InstalledFile `json:"files"`
	// Dirs were created, outer ones first.
	Dirs []string `json:"dirs,omitempty"`
	// Manifest is what was added to kube-apiserver's manifest.
	Manifest Additions `json:"manifest"`
	// Kubeadm is what was added to kubeadm's stored configuration; nil for
	// nothing.
	Kubeadm *kubeadmState `json:"kubeadm,omitempty"`
}

// InstalledFile is a file of the installation.
type InstalledFile struct {
	Path string `json:"path"`
	// Now is the fingerprint as installed.
	Now string `json:"now"`
	// Backup is the path of the earlier file's copy in the state directory; empty
	// if there was no file. Was is the earlier file's fingerprint.
	Backup string `json:"backup,omitempty"`
	Was    string `json:"was,omitempty"`
}

// kubeadmState is what the state records about the stored ClusterConfiguration.
type kubeadmState struct {
	kubeadmChange
	Additions clusterAdditions `json:"additions"`
	// Shared: another control plane node had already added all of it.
	Shared bool `json:"shared,omitempty"`
}

// onlyKubeadm reports whether an uninstallation has left nothing but kubeadm's
// part, which needs an API server that answers.
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

// set records a file, and keeps the record of what was there before the first
// installation.
func (s *State) set(f InstalledFile) {
	if known := s.file(f.Path); known != nil {
		*known = f
		return
	}
	s.Files = append(s.Files, f)
}

// clone copies everything that set changes.
func (s *State) clone() *State {
	out := *s
	out.Files = append([]InstalledFile(nil), s.Files...)
	out.Dirs = append([]string(nil), s.Dirs...)
	return &out
}

// backupName returns the path of a file's backup. It is in the state directory and
// not next to the file, because the kubelet runs every file in its directory.
// Different content has a different name, so a rollback loses no earlier backup.
func backupName(p, fingerprint string) string {
	return backupDir + "/" + strings.ReplaceAll(strings.Trim(p, "/"), "/", "_") + "-" + fingerprint[:12]
}

// InstalledBundle returns the bundle of the installation below root, or the one
// that the node was created from; nil if there is none.
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
