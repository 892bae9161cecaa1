// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// ControlPlane returns how many API servers are visible as Pods, and what keeps them from using the tunnel of a bundle.
func ControlPlane(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle) (seen int, findings []Finding, err error) {
	b = b.Defaulted()
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return 0, nil, err
	}
	c := &client{kube: kube}
	with, without, err := c.egressSelectors(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("look at the Pods of kube-apiserver: %w", err)
	}
	for _, f := range []*Finding{egressFinding(without), countFinding(b, len(with)+len(without))} {
		if f != nil {
			findings = append(findings, *f)
		}
	}
	return len(with) + len(without), findings, nil
}

// PreflightUninstall checks whether the cluster behind cfg can do without what
// these runs of Uninstall would delete; without any, what `fairlead uninstall` would.
func PreflightUninstall(ctx context.Context, cfg *rest.Config, runs ...UninstallOptions) ([]Finding, error) {
	if len(runs) == 0 {
		runs = []UninstallOptions{{}}
	}
	var all []Finding
	for _, o := range runs {
		findings, err := preflightUninstall(ctx, cfg, o)
		if err != nil {
			return nil, err
		}
		all = append(all, findings...)
	}
	return all, nil
}

func preflightUninstall(ctx context.Context, cfg *rest.Config, o UninstallOptions) ([]Finding, error) {
	c, err := newClient(cfg, o.Party)
	if err != nil {
		return nil, err
	}
	with, _, err := c.egressSelectors(ctx)
	if apierrors.IsForbidden(err) || err == nil && len(with) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("preflight: %w", err)
	}
	u, err := c.planUninstall(ctx, o, &Result{})
	if err != nil {
		return nil, err
	}
	f := tunnelInUse(with, u.changes)
	if f == nil {
		return nil, nil
	}
	f.Hint = "run `fairlead controlplane uninstall` on every control plane node first"
	return []Finding{*f}, nil
}

// findInUse determines whether installing the bundle would delete agents, or what they
// need, while kube-apiserver uses the tunnel. It skips a plan with problems, because
// such a plan is not executed.
func (c *client) findInUse(ctx context.Context, b *v1alpha1.Bundle, force bool) (*Finding, error) {
	with, _, err := c.egressSelectors(ctx)
	if err != nil || len(with) == 0 {
		return nil, err
	}
	rendered, err := bundle.Render(b)
	if err != nil {
		return nil, err
	}
	manifests, err := sorted(rendered.Objects)
	if err != nil {
		return nil, err
	}
	inv, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	p, err := c.makePlan(ctx, manifests, inv, force, true)
	if err != nil || len(p.problems) > 0 {
		return nil, err
	}
	f := tunnelInUse(with, append(p.prunes, p.changes...))
	if f == nil {
		return c.findStranded(ctx, with, p.changes)
	}
	f.Hint = "keep the tunnel in the bundle as it is installed, or run `fairlead controlplane uninstall` on every control plane node first"
	return f, nil
}

// tunnelInUse returns a finding if one of the changes deletes an object without which
// the tunnel stops. A recreated binding does not count, because it is missing only for
// a moment.
func tunnelInUse(apiServers []string, changes []change) *Finding {
	var lost []string
	for _, ch := range changes {
		gone := ch.action == Deleted || ch.action == Recreated && !isBinding(ch.Kind)
		if gone && konnectivity.Needed(ch.Kind, ch.Name, ch.live.GetLabels()) {
			lost = append(lost, ch.Ref.String())
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return &Finding{
		ID: FindingInUse,
		Message: fmt.Sprintf("kube-apiserver sends its traffic to nodes through the tunnel (%s), and this would delete %s: without agents, logs, exec, webhooks and aggregated APIs stop",
			strings.Join(apiServers, ", "), strings.Join(lost, ", ")),
	}
}
