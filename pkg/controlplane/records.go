// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/cluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// errOtherCluster is returned when the recorded state belongs to a cluster that
// this node has left.
var errOtherCluster = errors.New("what is recorded in " + StateDir + " is of another cluster, to which this node belonged before (its CA was another one)")

// clusterID identifies the cluster that the node belongs to now, as far as the CA
// file and the API server tell.
func (n *node) clusterID(ctx context.Context) journal.ClusterID {
	return n.api().ID(ctx, n.certs().CAKeys())
}

// ofThisCluster reports whether a recorded state or journal belongs to the node's
// cluster.
func (n *node) ofThisCluster(ctx context.Context, recorded journal.ClusterID) bool {
	return cluster.Same(recorded, n.certs().CAKeys(), func() string {
		n.connect()
		return n.clusterID(ctx).UID
	})
}

// checkCluster fails if the state belongs to another cluster.
func (n *node) checkCluster(ctx context.Context) error {
	if n.state == nil || n.ofThisCluster(ctx, n.state.Cluster) {
		return nil
	}
	leftovers := []string{StateDir}
	for _, f := range n.unchanged(n.state.Files) {
		leftovers = append(leftovers, f.Path)
	}
	return fmt.Errorf("%w: \"fairlead controlplane install\" takes over what it has left on the node; or, if kube-apiserver's manifest names none of it, remove it: rm -r %s",
		errOtherCluster, strings.Join(leftovers, " "))
}

// takeOver starts with a fresh state if the recorded state belongs to another
// cluster. The new state keeps only the files that are still as they were
// installed. It drops everything else that the old state recorded, including the
// backups of earlier files.
func (n *node) takeOver(ctx context.Context) {
	if n.checkCluster(ctx) == nil {
		return
	}
	n.opts.Notef("%v: its files are taken over, its copies of files from before are dropped", errOtherCluster)
	n.state = &State{Bundle: n.state.Bundle, Files: n.unchanged(n.state.Files), Dirs: slices.DeleteFunc(slices.Clone(n.state.Dirs), func(d string) bool { return !n.Exists(d) })}
}

// unchanged returns the files that are still as they were installed, without their
// backups.
func (n *node) unchanged(files []InstalledFile) []InstalledFile {
	var out []InstalledFile
	for _, f := range files {
		if now, err := n.Fingerprint(f.Path); err == nil && now == f.Now && f.Path != n.manifestPath {
			out = append(out, InstalledFile{Path: f.Path, Now: f.Now})
		}
	}
	return out
}

// interrupted returns the journal of a run that did not finish, or nil.
func (n *node) interrupted() (*journal.Journal, error) {
	j := &journal.Journal{}
	found, err := journal.ReadJSON(n.Host, journal.File, j)
	if err != nil || !found {
		return nil, err
	}
	return j, nil
}

func (n *node) readState() (*State, error) {
	s := &State{}
	found, err := journal.ReadJSON(n.Host, journal.StateFile, s)
	if err != nil || !found {
		return nil, err
	}
	return s, nil
}

// settledState reads the state. It fails after an interrupted run, because there
// is nothing to compare with.
func (n *node) settledState() (err error) {
	if j, err := n.interrupted(); err != nil || j != nil {
		if err == nil {
			err = fmt.Errorf("there is nothing to compare with: %s", j.Advice())
		}
		return err
	}
	n.state, err = n.readState()
	return err
}

// asMade returns the node with the bundle of its installation, or of its provider.
func (n *node) asMade(state *State) (*node, error) {
	if state != nil && state.Bundle != nil {
		return n.withBundle(state), nil
	}
	b, err := providedBundle(n.Host)
	if err != nil || b == nil {
		return n, err
	}
	made := n.withBundle(&State{Bundle: b})
	made.state = nil
	return made, nil
}

// withBundle returns the node with the installed bundle.
func (n *node) withBundle(state *State) *node {
	o := n.opts
	o.Bundle = state.Bundle
	out := newNode(o.defaulted())
	out.state = state
	return out
}
