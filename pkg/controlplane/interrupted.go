// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// ErrStillInstalled is returned by Uninstall when it has rolled back an interrupted
// run that followed an installation: that installation is in place, as it was.
var ErrStillInstalled = errors.New("an interrupted run was put back, and the installation from before it is in place: " +
	"run \"fairlead controlplane uninstall\" again to take that away, too")

// interrupted returns the journal of a run that did not finish, or nil.
func (n *node) interrupted() (*journal.Journal, error) {
	j := &journal.Journal{}
	found, err := journal.ReadJSON(n.Host, journal.File, j)
	if err != nil || !found {
		return nil, err
	}
	return j, nil
}
