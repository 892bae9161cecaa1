// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Leftovers returns the parts that a run stopped and did not put back; see check.Env.
func (p *Parts) Leftovers(ctx context.Context) ([]check.Leftover, error) {
	var out []check.Leftover
	for _, name := range []string{p.names.Scheduler, p.names.Agents} {
		left, err := p.stoppedDeployment(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, left...)
	}
	ds, err := p.daemonSets().Get(ctx, p.names.Agents, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && !stopped(ds)) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return append(out, check.Leftover{
		What:    fmt.Sprintf("DaemonSet %s/%s", p.names.Namespace, ds.Name),
		Remedy:  fmt.Sprintf(`kubectl -n %s patch daemonset %s --type merge -p '{"spec":{"template":{"spec":{"nodeSelector":{"%s":null}}}}}'`, p.names.Namespace, ds.Name, stopSelector),
		Restore: p.StartAgents,
	}), nil
}

// stoppedDeployment returns the Deployment if it has no replicas and a note of how many it had.
func (p *Parts) stoppedDeployment(ctx context.Context, name string) ([]check.Leftover, error) {
	d, err := p.deployments().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, noted, err := notedReplicas(d)
	if err != nil || !noted || ptr.Deref(d.Spec.Replicas, 1) > 0 {
		return nil, err
	}
	return []check.Leftover{{
		What:    fmt.Sprintf("Deployment %s/%s", p.names.Namespace, name),
		Remedy:  fmt.Sprintf("kubectl -n %s patch deployment %s --type merge -p '%s'", p.names.Namespace, name, scalePatch(n, "null")),
		Restore: func(ctx context.Context) error { return p.scaleUp(ctx, name) },
	}}, nil
}
