// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// hostPodTTL is short, because host network Pods come and go with rollouts.
const hostPodTTL = 30 * time.Second

// dialNode dials through a Pod in the node's network. If that Pod is gone, for example because a rollout replaced it, or has
// ended, it tries another: the Pod was assumed for a time, and lists of Pods come from a cache, too.
func (p *portForward) dialNode(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	var gone []types.NamespacedName
	var first error
	for range maxAttempts {
		pod, err := p.hostPod(ctx, to.Node, gone)
		if err != nil {
			return nil, cmp.Or(first, err)
		}
		to.Pod = pod
		c, err := p.dialPod(ctx, to)
		if reason := gateway.ReasonOf(err); err == nil || reason != gateway.ReasonNotFound && reason != gateway.ReasonHostUnreachable {
			return c, err
		}
		first = cmp.Or(first, err)
		gone = append(gone, pod)
		p.forgetHostPod(to.Node, pod)
	}
	return nil, first
}

// forgetHostPod assumes no longer that a Pod is in a node's network.
func (p *portForward) forgetHostPod(node string, pod types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts[node].NamespacedName == pod {
		delete(p.hosts, node)
	}
}

// hostPod finds a ready Pod in a node's network that is not one of those that are gone: agents of the tunnel first, then
// kube-proxy, then any.
func (p *portForward) hostPod(ctx context.Context, node string, gone []types.NamespacedName) (types.NamespacedName, error) {
	p.mu.Lock()
	known, ok := p.hosts[node]
	p.mu.Unlock()
	if ok && time.Now().Before(known.until) && !slices.Contains(gone, known.NamespacedName) {
		return known.NamespacedName, nil
	}
	list, err := p.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node + ",status.phase=Running", ResourceVersion: "0",
	})
	if apierrors.IsForbidden(err) {
		return types.NamespacedName{}, gateway.Errorf(gateway.ReasonDenied, "ask for the right to list Pods in all namespaces",
			"a node is reached through a Pod in its network, but Pods cannot be listed: %w", err)
	}
	if err != nil {
		return types.NamespacedName{}, gateway.Errorf(gateway.ReasonPathDown, "check that the API server answers: kubectl get --raw /readyz",
			"list the Pods of node %s: %w", node, err)
	}
	best, rank := types.NamespacedName{}, len(hostPodApps)+1
	for i := range list.Items {
		name := types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}
		if r := hostPodRank(&list.Items[i]); r < rank && !slices.Contains(gone, name) {
			best, rank = name, r
		}
	}
	if best.Name == "" {
		return best, gateway.Errorf(gateway.ReasonUnsupported, "use --via direct or --via ssh=USER@HOST",
			"node %s runs no ready Pod in its own network, and port-forwarding reaches a node through one", node)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hosts) > 10000 {
		clear(p.hosts)
	}
	p.hosts[node] = hostPod{best, time.Now().Add(hostPodTTL)}
	return best, nil
}

var hostPodApps = []string{"konnectivity-agent", "kube-proxy"}

// hostPodRank is lower for better Pods; it is past the end of the ranks for those that will
// not do.
func hostPodRank(pod *corev1.Pod) int {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !pod.Spec.HostNetwork || !ready || pod.DeletionTimestamp != nil {
		return len(hostPodApps) + 1
	}
	for i, app := range hostPodApps {
		if pod.Labels["k8s-app"] == app || pod.Labels["app.kubernetes.io/name"] == app {
			return i
		}
	}
	return len(hostPodApps)
}
