package controlplane

import (
	"errors"
	"fmt"
)

// ErrStillInstalled is returned by Uninstall when it has put back an interrupted run
// that came after an installation: that one is in place, as it was.
var ErrStillInstalled = errors.New("an interrupted run was put back, and the installation from before it is in place: " +
	"run \"fairlead controlplane uninstall\" again to take that away, too")

// interrupted is the journal of a run that did not end; nil if there is none.
func (n *node) interrupted() (*journal, error) {
	j := &journal{}
	found, err := readJSON(n.host, journalFile, j)
	if err != nil || !found {
		return nil, err
	}
	return j, nil
}

// advice says what became of an interrupted run, and which commands end it.
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

// putBackAdvice is for a run that could not be put back.
func (j *journal) putBackAdvice() string {
	if j.Operation == OpUninstall {
		return "run the same command again"
	}
	return "run the same command again, or \"fairlead controlplane uninstall\" to have it put back and no more"
}

// staysInstalled tells whether Uninstall has to stop after it has dealt with an
// interrupted run: what that run began is gone, and the user has seen nothing else.
func (j *journal) staysInstalled(now *State) bool {
	return j != nil && j.Operation != OpUninstall && j.Phase != phaseDone && now != nil
}

// notOthers refuses a renewal, which a timer may have started, to end what somebody
// else has begun: kube-apiserver would restart.
func (j *journal) notOthers() error {
	if j == nil || j.Operation == OpRenew || j.Phase == phasePreparing || j.Phase == phaseDone {
		return nil
	}
	return errors.New(j.advice())
}
