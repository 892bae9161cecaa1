// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
	f, _ := tunnelInUse(with, u.changes, hintUninstall)
	if f == nil {
		return nil, nil
	}
	return []Finding{*f}, nil
}
