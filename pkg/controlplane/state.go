// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// StateDir is where the journal, the state and backups are.
const StateDir = journal.Dir

// What a run does and leaves, as package journal records it.
type (
	// State is what an installation has left on the node.
	State = journal.State
	// InstalledFile is a file of the installation.
	InstalledFile = journal.InstalledFile
	// Additions records what was added to a manifest.
	Additions = manifests.Additions
	// Change is one file that a run creates, replaces or removes.
	Change = journal.Change
	// Step names a part of a run.
	Step = journal.Step
	// Operation is the command that a run executes.
	Operation = journal.Operation
)

// The steps, in the order of an installation.
const (
	StepPKI       = journal.StepPKI
	StepEgress    = journal.StepEgress
	StepServer    = journal.StepServer
	StepAPIServer = journal.StepAPIServer
	StepKubeadm   = journal.StepKubeadm
)

// The operations.
const (
	OpInstall   = journal.OpInstall
	OpUninstall = journal.OpUninstall
	OpRenew     = journal.OpRenew
)

// InstalledBundle returns the bundle of the installation below root, or the one
// that the node was created from; nil if there is none.
func InstalledBundle(root string) (*v1alpha1.Bundle, error) {
	n := newNode(Options{Root: root}.defaulted())
	s, err := n.readState()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return providedBundle(n.Host)
	}
	return s.Bundle, nil
}
