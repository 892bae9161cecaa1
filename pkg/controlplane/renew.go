// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// RenewOptions configure what to renew.
type RenewOptions struct {
	Options
	// Before limits the renewal to certificates that expire within this time; 0
	// renews all.
	Before time.Duration
	// Restart controls whether the server is restarted: "auto" (only if its image
	// cannot reload renewed files), "always" or "never".
	Restart string
}

// Renewal is the result of Renew, or of its dry run.
type Renewal struct {
	Result
	// Restarted: the server was restarted, which breaks the connections through it.
	Restarted bool `json:"restarted,omitempty"`
	// Notes lists the steps that remain for the user or for another program.
	Notes []string `json:"notes,omitempty"`
}

// Renew reissues the tunnel's certificates on this node. Old and new certificates
// are both accepted until the old ones expire, so no dial fails. This release's
// server reloads renewed files while it runs; any other server is restarted.
func Renew(ctx context.Context, o RenewOptions) (Renewal, error) {
	if !slices.Contains([]string{"", "auto", "always", "never"}, o.Restart) {
		return Renewal{}, preflightError(fmt.Errorf("--restart %q: choose auto, always or never", o.Restart))
	}
	o.Options = o.Options.defaulted()
	n := newNode(o.Options)
	if err := n.checkNode(); err != nil {
		return Renewal{}, preflightError(err)
	}
	unlock, err := journal.Lock(n.Host)
	if err != nil {
		return Renewal{}, preflightError(err)
	}
	defer unlock()
	desired := fmt.Sprintf("%s %s %s", OpRenew, o.Before, o.Restart)
	if r, done, err := n.resumeRenewal(ctx, desired); err != nil || done {
		return r, err
	}
	if err := n.checkCluster(ctx); err != nil {
		return Renewal{}, preflightError(err)
	}
	n.connect()
	j := &journal.Journal{Operation: OpRenew, Desired: desired, Started: n.opts.Now(), Cluster: n.clusterID(ctx), Steps: []Step{StepPKI, StepServer}}
	after := &State{}
	if n.state != nil {
		after = n.state.Clone()
		after.Cluster = j.Cluster
		j.State = after
	}
	p := newPlanner(n, j, after)
	r := Renewal{Notes: n.certPlanner(p.Plan).Renew(o.Before)}
	if err := p.Err(); err != nil {
		return Renewal{}, preflightError(err)
	}
	if len(p.Journal.Changes) == 0 {
		return r, nil
	}
	if err := p.restartServer(ctx, o.Restart, &r); err != nil {
		return Renewal{}, preflightError(err)
	}
	r.Result, err = n.run(ctx, p.Journal)
	if err != nil {
		r.Restarted = false
	}
	return r, err
}

// resumeRenewal completes a killed renewal if this run requests the same one, and
// rolls it back otherwise.
func (n *node) resumeRenewal(ctx context.Context, desired string) (r Renewal, done bool, err error) {
	j, err := n.interrupted()
	if err == nil {
		err = j.NotOthers()
	}
	if err != nil {
		return Renewal{}, false, preflightError(err)
	}
	r.Result, done, err = n.resume(ctx, OpRenew, desired)
	r.Restarted = err == nil && slices.Contains(r.Files, manifests.ServerFile(n.bundle))
	return r, done, err
}
