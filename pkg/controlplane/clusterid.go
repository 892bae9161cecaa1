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
