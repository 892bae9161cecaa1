// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"

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

// checkNode checks that root runs this on a kubeadm control plane node, and that
// its manifest is readable.
func (n *node) checkNode() error {
	user := os.Geteuid
	if n.opts.user != nil {
		user = n.opts.user
	}
	if user() != 0 {
		return errors.New("only root may change a control plane: run it with sudo")
	}
	dir := n.bundle.ControlPlane.ManifestsDir
	if !n.Exists(n.manifestPath) {
		return fmt.Errorf("%s does not exist: this is not a kubeadm control plane node; run the command on each of those, "+
			"or set controlPlane.manifestsDir if its kubelet reads another directory than %s", n.manifestPath, dir)
	}
	return n.readManifest()
}

// checkReady fails if kube-apiserver is not ready before the run: a failure that
// existed before could not be distinguished from one that the change caused.
func (n *node) checkReady(ctx context.Context) error {
	if n.opts.ready != nil {
		return n.opts.ready()
	}
	if n.opts.waits != nil {
		return nil
	}
	if err := n.healthy(ctx, "https://"+n.address+"/readyz"); err != nil {
		return fmt.Errorf("kube-apiserver is not ready as it is now: get it to work first: %w", err)
	}
	return nil
}
