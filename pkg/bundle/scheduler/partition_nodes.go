// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// PartitionNodes are names of a cluster's nodes, by what a partition says of them.
type PartitionNodes struct {
	// Inside have the partition's labels.
	Inside []string
	// Untainted are those inside that lack its taint.
	Untainted []string
	// Outside have its taint and lack its labels.
	Outside []string

	partition *v1alpha1.Partition
}

// NodesOf sorts a cluster's nodes by a partition.
func NodesOf(p *v1alpha1.Partition, nodes []corev1.Node) PartitionNodes {
	out := PartitionNodes{partition: p}
	selector := labels.SelectorFromSet(p.NodeLabels)
	for i := range nodes {
		node := &nodes[i]
		selected, tainted := selector.Matches(labels.Set(node.Labels)), p.Taint != nil && hasTaint(node, p.Taint)
		if selected {
			out.Inside = append(out.Inside, node.Name)
		}
		if selected && p.Taint != nil && !tainted {
			out.Untainted = append(out.Untainted, node.Name)
		}
		if tainted && !selected {
			out.Outside = append(out.Outside, node.Name)
		}
	}
	return out
}

// Problem says what is wrong with the nodes, and what to do; "" if nothing is.
func (n PartitionNodes) Problem() (problem, hint string) {
	selector, taint := labels.SelectorFromSet(n.partition.NodeLabels), n.partition.Taint
	switch {
	case len(n.Inside) == 0:
		return fmt.Sprintf("no node has the labels %s of the scheduler's partition: its pods stay Pending", selector),
			"label nodes (kubectl label node …), or remove scheduler.partition"
	case len(n.Untainted) > 0:
		return fmt.Sprintf("nodes %s are in the scheduler's partition but do not have its taint %s: other schedulers place pods there",
			strings.Join(n.Untainted, ", "), taint.ToString()), fmt.Sprintf("kubectl taint node %s %s", n.Untainted[0], taint.ToString())
	case len(n.Outside) > 0:
		return fmt.Sprintf("nodes %s have the partition's taint %s but not its labels %s: no scheduler places pods there",
			strings.Join(n.Outside, ", "), taint.ToString(), selector), fmt.Sprintf("kubectl label node %s %s", n.Outside[0], selector)
	}
	return "", ""
}

func hasTaint(node *corev1.Node, want *corev1.Taint) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == want.Key && t.Value == want.Value && t.Effect == want.Effect
	})
}
