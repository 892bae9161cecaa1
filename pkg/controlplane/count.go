package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// checkCount: agents must be told of every control plane node, or connect to the
// servers of some.
func (n *node) checkCount(ctx context.Context) error {
	if n.opts.Force || n.client == nil {
		return nil
	}
	nodes, err := n.apiServers(ctx)
	if err != nil {
		n.opts.Notef("could not look for other control plane nodes: %v", err)
		return nil
	}
	if err := konnectivity.CheckCount(n.bundle, nodes.Len()); err != nil {
		return fmt.Errorf("%w; or go on with --force (%v)", err, sets.List(nodes))
	}
	return nil
}

// apiServers are the nodes that run kube-apiserver, this one among them.
func (n *node) apiServers(ctx context.Context) (sets.Set[string], error) {
	pods, err := n.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New(n.name_)
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

// otherTunnels are the nodes, besides this one, whose kube-apiserver has an egress
// selector: a server alone has no use for kubeadm's stored configuration, and a node
// that has just joined has the flag before it has a server.
func (n *node) otherTunnels(ctx context.Context) ([]string, error) {
	pods, err := n.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New[string]()
	for _, p := range pods {
		if p.Spec.NodeName != n.name_ && p.DeletionTimestamp == nil && egressSelector(&p) != "" {
			nodes.Insert(p.Spec.NodeName)
		}
	}
	return sets.List(nodes), nil
}
