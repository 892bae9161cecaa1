// SPDX-License-Identifier: Apache-2.0

// Package cluster reads from the API server what an installation on one node must know of the
// whole cluster, and changes the configuration that kubeadm has stored there. Start at [API].
package cluster

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// API is the cluster's API, as one of its control plane nodes reaches it.
type API struct {
	// Client connects as administrator. If it is nil, Err holds the reason.
	Client kubernetes.Interface
	Err    error
	// Node is the name of the node that this program runs on.
	Node   string
	Bundle *v1alpha1.Bundle
}

// ID identifies the cluster, as far as the CA's keys and the API server tell.
func (a API) ID(ctx context.Context, caKeys []string) journal.ClusterID {
	id := journal.ClusterID{CA: caKeys}
	if a.Client != nil {
		if ns, err := a.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err == nil {
			id.UID = string(ns.UID)
		}
	}
	return id
}

// Same reports whether a recorded state or journal belongs to the cluster with
// these keys. The CA decides. If the CA was rotated and nothing was recorded in
// between, the UID decides.
func Same(recorded journal.ClusterID, caKeys []string, uid func() string) bool {
	if len(recorded.CA) == 0 || len(caKeys) == 0 || slices.ContainsFunc(caKeys, func(k string) bool { return slices.Contains(recorded.CA, k) }) {
		return true // other checks report an unreadable CA
	}
	return recorded.UID != "" && uid() == recorded.UID
}

// APIServers returns the nodes that run kube-apiserver, including this one.
func (a API) APIServers(ctx context.Context) (sets.Set[string], error) {
	pods, err := a.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New(a.Node)
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			nodes.Insert(p.Spec.NodeName)
		}
	}
	return nodes, nil
}

func (a API) apiServerPods(ctx context.Context) ([]corev1.Pod, error) {
	if a.Client == nil {
		return nil, a.Err
	}
	pods, err := a.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=" + manifests.APIServer})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// OtherTunnels returns the other nodes whose kube-apiserver has an egress selector.
// A node that runs only a Konnectivity server does not count, as it does not use
// kubeadm's stored configuration. A node that has just joined has the flag before it
// has a server.
func (a API) OtherTunnels(ctx context.Context) ([]string, error) {
	pods, err := a.apiServerPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := sets.New[string]()
	for _, p := range pods {
		if p.Spec.NodeName != a.Node && p.DeletionTimestamp == nil && manifests.EgressSelector(&p) != "" {
			nodes.Insert(p.Spec.NodeName)
		}
	}
	return sets.List(nodes), nil
}

// otherServers returns the other nodes that run a Konnectivity server.
func (a API) otherServers(ctx context.Context) ([]string, error) {
	if a.Client == nil {
		return nil, a.Err
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: konnectivity.Server(a.Bundle).Selector})
	pods, err := a.Client.CoreV1().Pods(a.Bundle.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, p := range pods.Items {
		if p.Spec.NodeName != a.Node && p.DeletionTimestamp == nil {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes, nil
}

// HasAgents reports whether the agents' workload exists and has desired Pods.
func (a API) HasAgents(ctx context.Context) (bool, error) {
	if a.Client == nil {
		return false, a.Err
	}
	if a.Bundle.Konnectivity.Agent.Form == v1alpha1.FormDeployment {
		d, err := a.Client.AppsV1().Deployments(a.Bundle.Namespace).Get(ctx, konnectivity.AgentName, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return d.Spec.Replicas == nil || *d.Spec.Replicas > 0, nil
	}
	ds, err := a.Client.AppsV1().DaemonSets(a.Bundle.Namespace).Get(ctx, konnectivity.AgentName, metav1.GetOptions{})
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return ds.Status.DesiredNumberScheduled > 0, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
