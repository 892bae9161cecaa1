// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// The ConfigMap of kubeadm.
const (
	kubeadmConfigMap = manifests.KubeadmConfigMap
	kubeadmKey       = manifests.KubeadmKey
)

// clusterConfiguration reads kubeadm's stored ClusterConfiguration.
func (n *node) clusterConfiguration(ctx context.Context) (string, error) {
	if n.client == nil {
		return "", n.clientErr
	}
	cm, err := n.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, kubeadmConfigMap, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	text, ok := cm.Data[kubeadmKey]
	if !ok {
		return "", fmt.Errorf("ConfigMap %s holds no %s", kubeadmConfigMap, kubeadmKey)
	}
	return text, nil
}

// setClusterConfiguration replaces the stored text from with to. It fails if the
// stored text is neither.
func (n *node) setClusterConfiguration(ctx context.Context, from, to string, dryRun bool) error {
	if n.client == nil {
		return n.clientErr
	}
	options := metav1.UpdateOptions{FieldManager: "fairlead"}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	maps := n.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cm, err := maps.Get(ctx, kubeadmConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch cm.Data[kubeadmKey] {
		case to:
			return nil
		case from:
		default:
			return fmt.Errorf("ConfigMap %s %w", kubeadmConfigMap, journal.ErrEdited)
		}
		cm.Data[kubeadmKey] = to
		_, err = maps.Update(ctx, cm, options)
		return err
	})
}

// otherServers returns the other nodes that run a Konnectivity server.
func (n *node) otherServers(ctx context.Context) ([]string, error) {
	if n.client == nil {
		return nil, n.clientErr
	}
	pods, err := n.client.CoreV1().Pods(n.bundle.Namespace).List(ctx, metav1.ListOptions{LabelSelector: serverSelector(n.bundle)})
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, p := range pods.Items {
		if p.Spec.NodeName != n.ownName && p.DeletionTimestamp == nil {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes, nil
}

// kubeadmLeft is the warning if an uninstallation could not change kubeadm's
// stored configuration.
const kubeadmLeft = "ConfigMap " + kubeadmConfigMap + " still has the tunnel, so the next \"kubeadm upgrade\" would bring its flag back: " +
	"run \"fairlead controlplane uninstall\" again when kube-apiserver answers"

var errKubeadmConfig = errors.New("kubeadm's stored configuration cannot be changed, so the next \"kubeadm upgrade\" would take the tunnel away again: " +
	"leave it alone with --kubeadm-config=false")
