// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/preflight"
)

// IDs of the preflight checks whose errors [Options.IgnorePreflight] turns into
// warnings. Package install has the first two IDs as well.
const (
	// CheckVersion: the Kubernetes version is one that this release is tested with.
	CheckVersion = preflight.Version
	// CheckServerCount: the bundle tells agents about every control plane node.
	CheckServerCount = preflight.ServerCount
	// CheckAgents: agents can connect before kube-apiserver depends on them.
	CheckAgents = preflight.Agents
	// CheckFrontProxyCA: no CA signs both client certificates and those of front proxies.
	CheckFrontProxyCA = preflight.FrontProxyCA
	// CheckAll stands for every check that can be ignored.
	CheckAll = preflight.All
)

// IgnorableChecks returns the values that [Options.IgnorePreflight] accepts.
func IgnorableChecks() []string { return preflight.Ignorable() }

// preflight runs every check that needs no plan. It only reads.
func (p *planner) preflight(ctx context.Context) {
	if !ptr.Deref(p.bundle.Konnectivity.Enabled, true) {
		p.Fail(errors.New("konnectivity.enabled is false in the bundle: there is nothing to install on a control plane node"))
		return
	}
	if errs := bundle.Validate(p.bundle); len(errs) > 0 {
		p.Fail(fmt.Errorf("%w: %w", bundle.ErrInvalid, errs.ToAggregate()))
		return
	}
	if err := p.checkNode(); err != nil {
		p.Fail(err)
		return
	}
	p.connect()
	for _, err := range preflight.Run(ctx, preflight.Node{
		Host: p.node.Host, Bundle: p.bundle, Container: p.container, API: p.api(), Proc: p.proc(), Now: p.opts.Now, Notef: p.opts.Notef,
		Ignored: p.opts.IgnorePreflight, ServerOnly: p.opts.ServerOnly, UsesTunnel: p.state != nil && !p.state.Manifest.Empty(), Ready: p.checkReady,
	}) {
		p.Fail(err)
	}
	if p.Err() == nil {
		p.Fail(p.checkVisible(kubelet.ProgramOf(p.container)))
	}
}
