// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// State is what an installation has left on the node, so that it can be removed
// again.
type State struct {
	// Version of fairlead that installed, and the time of the installation.
	Version   string    `json:"version"`
	Installed time.Time `json:"installed"`
	// Cluster is the node's cluster at that time.
	Cluster ClusterID `json:"cluster,omitzero"`
	// Bundle is the installed bundle, with all defaults.
	Bundle *v1alpha1.Bundle `json:"bundle"`
	// ServerOnly: kube-apiserver does not use the tunnel yet.
	ServerOnly bool `json:"serverOnly,omitempty"`
	// Files were created or replaced.
	Files []InstalledFile `json:"files"`
	// Dirs were created, outer ones first.
	Dirs []string `json:"dirs,omitempty"`
	// Manifest is what was added to kube-apiserver's manifest.
	Manifest manifests.Additions `json:"manifest"`
	// EgressHash is a hash of the egress selector configuration that kube-apiserver has
	// started with; empty if it does not use the tunnel, and in states of older versions.
	EgressHash string `json:"egressHash,omitempty"`
	// Kubeadm is what was added to kubeadm's stored configuration; nil for
	// nothing.
	Kubeadm *KubeadmState `json:"kubeadm,omitempty"`
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

// KubeadmState is what the state records about the stored ClusterConfiguration.
type KubeadmState struct {
	KubeadmChange
	Additions manifests.ClusterAdditions `json:"additions"`
	// Shared: another control plane node had already added all of it.
	Shared bool `json:"shared,omitempty"`
}

// OnlyKubeadm reports whether an uninstallation has left nothing but kubeadm's
// part, which needs an API server that answers.
func (s *State) OnlyKubeadm() bool {
	return s != nil && len(s.Files) == 0 && s.Manifest.Empty() && s.Kubeadm != nil
}

// File returns the record of a file, or nil if there is none.
func (s *State) File(p string) *InstalledFile {
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

// Set records a file, and keeps the record of what was there before the first
// installation.
func (s *State) Set(f InstalledFile) {
	if known := s.File(f.Path); known != nil {
		*known = f
		return
	}
	s.Files = append(s.Files, f)
}

// Clone copies everything that Set changes.
func (s *State) Clone() *State {
	out := *s
	out.Files = append([]InstalledFile(nil), s.Files...)
	out.Dirs = append([]string(nil), s.Dirs...)
	return &out
}

// BackupName returns the path of a file's backup. It is in the state directory and
// not next to the file, because the kubelet runs every file in its directory.
// Different content has a different name, so a rollback loses no earlier backup.
func BackupName(p, fingerprint string) string {
	return BackupDir + "/" + strings.ReplaceAll(strings.Trim(p, "/"), "/", "_") + "-" + fingerprint[:12]
}

// ClusterID identifies the cluster that a state or a journal belongs to: after
// "kubeadm reset" and "kubeadm init" the same node belongs to another cluster.
type ClusterID struct {
	// CA holds fingerprints of the public keys in the cluster's ca.crt: two while
	// the CA is being rotated.
	CA []string `json:"ca,omitempty"`
	// UID is that of Namespace kube-system, which survives every CA rotation. It is
	// empty if the API server did not return it.
	UID string `json:"uid,omitempty"`
}

// KubeadmChange is the text of the stored ClusterConfiguration before and after.
type KubeadmChange struct {
	Before string `json:"before"`
	After  string `json:"after"`
}
