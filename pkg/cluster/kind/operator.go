// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// applyOperator installs the operator and its CustomResourceDefinitions, if the cluster is to have one.
func (p *plan) applyOperator(ctx context.Context, config *rest.Config) error {
	if !p.state.Operator {
		return nil
	}
	objects, err := operator.Objects(operator.Options{})
	if err != nil {
		return err
	}
	_, err = install.Apply(ctx, config, objects, install.Options{Party: install.Operator, Timeout: installLimit, Leases: install.LeasesOfOperator(operator.Options{})})
	return err
}

// operatorReady requires all Pods of the operator to be ready.
func (p *plan) operatorReady(ctx context.Context, client kubernetes.Interface) (string, error) {
	return p.settled(ctx, client, func(ctx context.Context, client kubernetes.Interface) (part, error) {
		c := operator.Component(operator.Options{})
		return p.count(ctx, client, c, v1alpha1.FormDeployment, int(c.Replicas))
	})
}
