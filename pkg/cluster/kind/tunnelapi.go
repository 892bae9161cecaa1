// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func isAPIService(o component.Object) bool {
	_, is := o.(*apiregistrationv1.APIService)
	return is
}

// tunnelAPIReady requires all Pods of the tunnel's API server to be ready, and then registers it.
func (p *plan) tunnelAPIReady(config *rest.Config) func(context.Context, kubernetes.Interface) (string, error) {
	return func(ctx context.Context, client kubernetes.Interface) (string, error) {
		text, err := p.settled(ctx, client, func(ctx context.Context, client kubernetes.Interface) (part, error) {
			c := tunnelapi.Component(p.bundle)
			return p.count(ctx, client, c, v1alpha1.FormDeployment, int(c.Replicas))
		})
		if err != nil {
			return "", err
		}
		return text, p.applyBundle(ctx, config, func(o component.Object) bool {
			return !p.state.Operator || isAPIService(o) // of a cluster that was stopped, users may have changed the others
		})
	}
}
