// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// Advice describes an interrupted run and the commands that finish it.
func (j *Journal) Advice() string {
	what := fmt.Sprintf("an earlier %s was interrupted while %s: ", j.Operation, j.Phase)
	const install, uninstall = "\"fairlead controlplane install\"", "\"fairlead controlplane uninstall\""
	switch {
	case j.Phase == PhaseRollback:
		return what + "the next " + install + " or " + uninstall + " begins with the rest of that"
	case j.Operation == OpRenew:
		return what + "\"fairlead certs renew\" completes it, " + uninstall + " puts back what it changed, and stops there"
	case j.Operation == OpUninstall:
		return what + uninstall + " completes it, " + install + " puts back what it took away"
	}
	return what + install + " for the same bundle completes it, " + uninstall + " puts back what was before it"
}

// PutBackAdvice is the advice for a run whose rollback failed.
func (j *Journal) PutBackAdvice() string {
	if j.Operation == OpUninstall {
		return "run the same command again"
	}
	return "run the same command again, or \"fairlead controlplane uninstall\" to have it put back and no more"
}

// StaysInstalled reports whether Uninstall must stop after it has handled an
// interrupted run. The rollback of that run is all that the user has seen so far;
// removing the earlier installation takes another Uninstall.
func (j *Journal) StaysInstalled(now *State) bool {
	return j != nil && j.Operation != OpUninstall && j.Phase != PhaseDone && now != nil
}

// NotOthers fails if a renewal would finish an interrupted run of another command. A
// timer may have started the renewal, and finishing the other run would restart
// kube-apiserver.
func (j *Journal) NotOthers() error {
	if j == nil || j.Operation == OpRenew || j.Phase == PhasePreparing || j.Phase == PhaseDone {
		return nil
	}
	return errors.New(j.Advice())
}

// NothingToDo reports whether the node is already in the desired state.
func (j *Journal) NothingToDo() bool {
	return len(j.Changes) == 0 && j.Kubeadm == nil && len(j.Dirs) == 0
}
