// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// checkAgents fails if the cluster has no agents and has blocking webhooks. From
// the moment kube-apiserver uses the tunnel until the first agent is connected,
// kube-apiserver reaches no webhook. A webhook that must be called for every Pod
// would then reject the agents' Pods, and never recover.
func (n *Node) checkAgents(ctx context.Context) error {
	if n.ServerOnly || n.API.Client == nil || n.UsesTunnel {
		return nil
	}
	if agents, err := n.API.HasAgents(ctx); err != nil || agents {
		if err != nil {
			n.Notef("could not look for agents: %v", err)
		}
		return nil
	}
	hooks, err := n.blockingWebhooks(ctx)
	if err != nil {
		n.Notef("could not look for webhooks: %v", err)
		return nil
	}
	if len(hooks) > 0 {
		err := fmt.Errorf("the cluster has no agents yet, and without one kube-apiserver cannot reach the webhooks that it must call (%s), "+
			"not even to admit agents: run this command with --server-only, then \"fairlead install\" with the same bundle, then this command again without --server-only", strings.Join(hooks, ", "))
		return n.ignorable(Agents, err)
	}
	n.Notef("the cluster has no agents yet: logs, exec and everything else on the way to nodes fails until \"fairlead install\" has brought them")
	return nil
}

// blockingWebhooks returns the admission webhook configurations that call a
// Service and whose failure policy is Fail.
func (n *Node) blockingWebhooks(ctx context.Context) ([]string, error) {
	validating, err := n.API.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	mutating, err := n.API.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	add := func(config string, client admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType) {
		if client.Service != nil && ptr.Deref(policy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail && !slices.Contains(names, config) {
			names = append(names, config)
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			add(c.Name, w.ClientConfig, w.FailurePolicy)
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			add(c.Name, w.ClientConfig, w.FailurePolicy)
		}
	}
	return names, nil
}

// checkCount fails if the bundle does not tell agents about every control plane
// node: they would connect to only some of the servers.
func (n *Node) checkCount(ctx context.Context) error {
	if n.API.Client == nil {
		return nil
	}
	nodes, err := n.API.APIServers(ctx)
	if err != nil {
		n.Notef("could not look for other control plane nodes: %v", err)
		return nil
	}
	if err := konnectivity.CheckCount(n.Bundle, nodes.Len()); err != nil {
		return n.ignorable(ServerCount, fmt.Errorf("%w (%v)", err, sets.List(nodes)))
	}
	return nil
}
