// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// planKubeadm plans the change of kubeadm's stored configuration.
func (p *planner) planKubeadm(ctx context.Context) {
	before, err := p.clusterConfiguration(ctx)
	if err != nil {
		p.Fail(fmt.Errorf("%w: %w", errKubeadmConfig, err))
		return
	}
	base, err := p.withoutEarlierAdditions(before)
	if err != nil {
		p.Fail(err)
		return
	}
	after, added, err := manifests.AddToCluster(base, p.bundle)
	if err != nil {
		p.Fail(err)
		return
	}
	if len(added) == 0 && p.After.Kubeadm == nil {
		// If other nodes run servers, the installation of one of them added it;
		// otherwise a person did.
		if others, err := p.otherServers(ctx); err == nil && len(others) > 0 {
			_, all, err := manifests.AddToCluster("{}", p.bundle)
			p.Fail(err)
			p.After.Kubeadm = &journal.KubeadmState{Additions: all, Shared: true}
		}
	}
	if after == before {
		return
	}
	if err := p.setClusterConfiguration(ctx, before, after, true); err != nil {
		p.Fail(fmt.Errorf("%w: %w", errKubeadmConfig, err))
		return
	}
	p.Journal.Kubeadm = &journal.KubeadmChange{Before: before, After: after}
	p.After.Kubeadm = &journal.KubeadmState{KubeadmChange: journal.KubeadmChange{Before: base, After: after}, Additions: added}
}

// withoutEarlierAdditions returns the stored configuration without what an
// earlier installation added for another bundle. If the text has not changed
// since, this is byte for byte the text from before the first installation.
func (p *planner) withoutEarlierAdditions(text string) (string, error) {
	var k *journal.KubeadmState
	if p.state != nil {
		k = p.state.Kubeadm
	}
	if k == nil {
		return text, nil
	}
	_, all, err := manifests.AddToCluster("{}", p.bundle)
	if err != nil {
		return "", err
	}
	_, missing, err := manifests.AddToCluster(text, p.bundle)
	if err == nil && len(missing) == 0 && all.Has(k.Additions) {
		return text, nil // everything needed is there, and nothing else
	}
	if text == k.After && !k.Shared {
		return k.Before, nil
	}
	return manifests.RemoveFromCluster(text, k.Additions)
}
