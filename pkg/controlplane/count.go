// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// checkCount fails if the bundle does not tell agents about every control plane
// node: they would connect to only some of the servers.
func (n *node) checkCount(ctx context.Context) error {
	if n.client == nil {
		return nil
	}
	nodes, err := n.apiServers(ctx)
	if err != nil {
		n.opts.Notef("could not look for other control plane nodes: %v", err)
		return nil
	}
	if err := konnectivity.CheckCount(n.bundle, nodes.Len()); err != nil {
		return n.opts.ignorable(CheckServerCount, fmt.Errorf("%w (%v)", err, sets.List(nodes)))
	}
	return nil
}

// apiServers returns the nodes that run kube-apiserver, including this one.
func (n *node) apiServers(ctx context.Context) (sets.Set[string], error) {
	pods, err := n.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New(n.ownName)
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			nodes.Insert(p.Spec.NodeName)
		}
	}
	return nodes, nil
}

func (n *node) apiServerPods(ctx context.Context) ([]corev1.Pod, error) {
	if n.client == nil {
		return nil, n.clientErr
	}
	pods, err := n.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=" + apiServer})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// otherTunnels returns the other nodes whose kube-apiserver has an egress selector.
// A node that runs only a Konnectivity server does not count, as it does not use
// kubeadm's stored configuration. A node that has just joined has the flag before it
// has a server.
func (n *node) otherTunnels(ctx context.Context) ([]string, error) {
	pods, err := n.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New[string]()
	for _, p := range pods {
		if p.Spec.NodeName != n.ownName && p.DeletionTimestamp == nil && egressSelector(&p) != "" {
			nodes.Insert(p.Spec.NodeName)
		}
	}
	return sets.List(nodes), nil
}
