// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// mayExecute returns a *BlockedError for a plan that must not be executed.
func (c *client) mayExecute(ctx context.Context, p *plan, manifests []*unstructured.Unstructured, o Options) error {
	problems := p.problems
	if o.KeepTunnel {
		cut, err := c.keepsTunnel(ctx, func(apiServers []string) (*Finding, Ref, error) { return c.cutsTunnel(ctx, apiServers, p) })
		if err != nil {
			return err
		}
		problems = slices.Concat(problems, cut)
	}
	return c.blocked(ctx, problems, manifests)
}

// mayRemove returns a *BlockedError for a removal that must not be executed.
func (c *client) mayRemove(ctx context.Context, u *removal, o UninstallOptions) error {
	if !o.KeepTunnel {
		return nil
	}
	cut, err := c.keepsTunnel(ctx, func(apiServers []string) (*Finding, Ref, error) {
		f, lost := tunnelInUse(apiServers, u.changes, hintUninstall)
		return f, lost, nil
	})
	if err != nil {
		return err
	}
	return c.blocked(ctx, cut, nil)
}

// findInUse determines whether installing the bundle would delete agents, or what they
// need, while kube-apiserver uses the tunnel. A plan with problems counts as well: until
// it is executed, the problems may be gone.
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
	if err != nil {
		return nil, err
	}
	f, _, err := c.cutsTunnel(ctx, with, p)
	return f, err
}

// cutsTunnel returns a finding if the plan would delete agents, or what they need, or
// leave no node for them, and the first of these objects.
func (c *client) cutsTunnel(ctx context.Context, apiServers []string, p *plan) (*Finding, Ref, error) {
	f, lost := tunnelInUse(apiServers, slices.Concat(p.prunes, p.changes), "keep the tunnel in the bundle as it is installed, or "+hintUninstall)
	if f == nil {
		return c.findStranded(ctx, apiServers, p.changes)
	}
	return f, lost, nil
}

// keepsTunnel returns a problem if find has a finding while kube-apiserver uses the
// tunnel. Like Preflight, it skips what the user may not read.
func (c *client) keepsTunnel(ctx context.Context, find func(apiServers []string) (*Finding, Ref, error)) ([]Problem, error) {
	with, _, err := c.egressSelectors(ctx)
	if err == nil && len(with) > 0 {
		var f *Finding
		var lost Ref
		if f, lost, err = find(with); f != nil {
			return []Problem{{Object: lost, Reason: ReasonInUse, Message: f.Message, Hint: f.Hint}}, nil
		}
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("find out whether kube-apiserver uses the tunnel: %w", err)
	}
	return nil, nil
}

// hintUninstall is what to do about a tunnel in use that an uninstallation would cut.
const hintUninstall = "run `fairlead controlplane uninstall` on every control plane node first"

// tunnelInUse returns a finding if one of the changes deletes an object without which
// the tunnel stops, and the first such object. A recreated binding does not count, because
// it is missing only for a moment.
func tunnelInUse(apiServers []string, changes []change, hint string) (*Finding, Ref) {
	var lost []string
	var first Ref
	for _, ch := range changes {
		gone := ch.action == Deleted || ch.action == Recreated && !isBinding(ch.Kind)
		if gone && konnectivity.Needed(ch.Kind, ch.Name, ch.live.GetLabels()) {
			if len(lost) == 0 {
				first = ch.Ref
			}
			lost = append(lost, ch.Ref.String())
		}
	}
	if len(lost) == 0 {
		return nil, first
	}
	return &Finding{
		ID: FindingInUse, Hint: hint,
		Message: fmt.Sprintf("kube-apiserver sends its traffic to nodes through the tunnel (%s), and this would delete %s: without agents, logs, exec, webhooks and aggregated APIs stop",
			strings.Join(apiServers, ", "), strings.Join(lost, ", ")),
	}, first
}
