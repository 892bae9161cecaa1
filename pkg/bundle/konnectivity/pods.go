// SPDX-License-Identifier: Apache-2.0

package konnectivity

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PoolLabel tells the agents of a TunnelPool from those of the bundle and of other pools.
const PoolLabel = "fairlead.dev/tunnel-pool"

// notOfPool selects what no TunnelPool has.
var notOfPool = metav1.LabelSelectorRequirement{Key: PoolLabel, Operator: metav1.LabelSelectorOpDoesNotExist}

// PodsOf returns the label selector, for lists, of a workload's own Pods. The selector of the bundle's agents matches
// those of TunnelPools as well, because they have the same labels and [PoolLabel]. template has the labels of the
// workload's Pods.
func PodsOf(selector metav1.LabelSelector, template map[string]string) string {
	own := selector.DeepCopy()
	if _, ofPool := template[PoolLabel]; !ofPool {
		own.MatchExpressions = append(own.MatchExpressions, notOfPool)
	}
	return metav1.FormatLabelSelector(own)
}
