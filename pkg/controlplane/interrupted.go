// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
)

// ErrStillInstalled is returned by Uninstall when it has rolled back an interrupted
// run that followed an installation: that installation is in place, as it was.
var ErrStillInstalled = errors.New("an interrupted run was put back, and the installation from before it is in place: " +
	"run \"fairlead controlplane uninstall\" again to take that away, too")

// interrupted returns the journal of a run that did not finish, or nil.
func (n *node) interrupted() (*journal, error) {
	j := &journal{}
	found, err := readJSON(n.host, journalFile, j)
	if err != nil || !found {
		return nil, err
	}
	return j, nil
}

// advice describes an interrupted run and the commands that finish it.
func (j *journal) advice() string {
	what := fmt.Sprintf("an earlier %s was interrupted while %s: ", j.Operation, j.Phase)
	const install, uninstall = "\"fairlead controlplane install\"", "\"fairlead controlplane uninstall\""
	switch {
	case j.Phase == phaseRollback:
		return what + "the next " + install + " or " + uninstall + " begins with the rest of that"
	case j.Operation == OpRenew:
		return what + "\"fairlead certs renew\" completes it, " + uninstall + " puts back what it changed, and stops there"
	case j.Operation == OpUninstall:
		return what + uninstall + " completes it, " + install + " puts back what it took away"
	}
	return what + install + " for the same bundle completes it, " + uninstall + " puts back what was before it"
}

// putBackAdvice is the advice for a run whose rollback failed.
func (j *journal) putBackAdvice() string {
	if j.Operation == OpUninstall {
		return "run the same command again"
	}
	return "run the same command again, or \"fairlead controlplane uninstall\" to have it put back and no more"
}

// staysInstalled reports whether Uninstall must stop after it has handled an
// interrupted run. The rollback of that run is all that the user has seen so far;
// removing the earlier installation takes another Uninstall.
func (j *journal) staysInstalled(now *State) bool {
	return j != nil && j.Operation != OpUninstall && j.Phase != phaseDone && now != nil
}

// notOthers fails if a renewal would finish an interrupted run of another command. A
// timer may have started the renewal, and finishing the other run would restart
// kube-apiserver.
func (j *journal) notOthers() error {
	if j == nil || j.Operation == OpRenew || j.Phase == phasePreparing || j.Phase == phaseDone {
		return nil
	}
	return errors.New(j.advice())
}
