package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Coexistence is what the second scheduler has for itself, and no other scheduler may use.
type Coexistence struct {
	// SchedulerNames are its profiles.
	SchedulerNames []string
	// Workload is the name of its Deployment: its Pods' names begin with it.
	Workload string
	// ConfigMap holds its configuration, in clusters where it does.
	ConfigMap types.NamespacedName
	// Partition is its nodes; nil if it shares all nodes.
	Partition *v1alpha1.Partition
}

// CoexistenceOf says what a bundle's scheduler has for itself.
func CoexistenceOf(b *v1alpha1.Bundle) Coexistence {
	b = b.Defaulted()
	return Coexistence{
		SchedulerNames: scheduler.ProfileNames(b),
		Workload:       b.Scheduler.Name,
		ConfigMap:      types.NamespacedName{Namespace: b.Namespace, Name: scheduler.ConfigMapName(b)},
		Partition:      b.Scheduler.Partition,
	}
}

// schedulerCoexistence proves that no other scheduler in the cluster serves the second scheduler's names or takes its Lease (SCHED-03, SCHED-35), and
// that the nodes of its partition are as the bundle says.
func schedulerCoexistence(ctx context.Context, s *Scope) error {
	if err := s.leaseHolderIsOurs(ctx); err != nil {
		return err
	}
	if err := s.noForeignConfiguration(ctx); err != nil {
		return err
	}
	if err := s.noForeignBindings(ctx); err != nil {
		return err
	}
	return s.partitionHolds(ctx)
}

// leaseHolderIsOurs asks whose identity the Lease's holder has, where that can be told.
func (s *Scope) leaseHolderIsOurs(ctx context.Context) error {
	if s.OwnsIdentity == nil {
		return nil
	}
	lease, err := s.getLease(ctx, s.Lease)
	if apierrors.IsNotFound(err) {
		return nil // scheduler-lease says so
	}
	if err != nil {
		return err
	}
	holder := holderOf(lease)
	if holder == "" {
		return nil
	}
	ours, err := s.OwnsIdentity(ctx, holder)
	if err != nil {
		return fmt.Errorf("whose %s, the holder of Lease %s, is: %w", holder, s.Lease, err)
	}
	if !ours {
		return WithHint(fmt.Errorf("Lease %s is held by %s, which is no replica of this bundle's scheduler", s.Lease, holder),
			"another scheduler uses the same Lease, and while it leads ours does nothing: give one of the two a Lease of its own (scheduler.leaderElection.leaseName)")
	}
	return nil
}

// noForeignConfiguration reads all configurations of schedulers that ConfigMaps hold.
func (s *Scope) noForeignConfiguration(ctx context.Context) error {
	maps, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list ConfigMaps, which hold schedulers' configurations: %w", err)
	}
	found := 0
	for i := range maps.Items {
		m := &maps.Items[i]
		if m.Namespace == s.Coexistence.ConfigMap.Namespace && m.Name == s.Coexistence.ConfigMap.Name {
			continue
		}
		for key, text := range m.Data {
			if !strings.Contains(text, "KubeSchedulerConfiguration") {
				continue
			}
			found++
			if err := s.foreignConfiguration(fmt.Sprintf("ConfigMap %s/%s, key %s", m.Namespace, m.Name, key), text); err != nil {
				return err
			}
		}
	}
	s.Detail("other-configurations", "%d", found)
	return nil
}

// foreignConfiguration compares one configuration's names and Lease with ours. What cannot be read configures nobody.
func (s *Scope) foreignConfiguration(where, text string) error {
	var config schedulerv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal([]byte(text), &config); err != nil || config.Kind != "KubeSchedulerConfiguration" {
		return nil //nolint:nilerr // as above
	}
	for _, p := range config.Profiles {
		if name := ptr.Deref(p.SchedulerName, stockSchedulerName); slices.Contains(s.Coexistence.SchedulerNames, name) {
			return WithHint(fmt.Errorf("%s configures another scheduler with the profile %q, which is ours", where, name),
				"if both run, both bind the same pods: rename one of the profiles, or delete the other scheduler")
		}
	}
	l := config.LeaderElection
	lease := types.NamespacedName{Namespace: l.ResourceNamespace, Name: l.ResourceName}
	setDefault(&lease.Namespace, metav1.NamespaceSystem)
	setDefault(&lease.Name, v1alpha1.DefaultSchedulerLease)
	if ptr.Deref(l.LeaderElect, true) && lease == s.Lease {
		return WithHint(fmt.Errorf("%s configures another scheduler with Lease %s, which is ours", where, lease),
			"one of the two schedulers never leads: give the other a Lease of its own")
	}
	return nil
}

// partitionHolds compares the live nodes with the bundle's partition.
func (s *Scope) partitionHolds(ctx context.Context) error {
	p := s.Coexistence.Partition
	if p == nil {
		return nil
	}
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	selector, inside := labels.SelectorFromSet(p.NodeLabels), 0
	var untainted, outside []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		selected, tainted := selector.Matches(labels.Set(node.Labels)), p.Taint != nil && hasTaint(node, p.Taint)
		switch {
		case selected:
			inside++
			if p.Taint != nil && !tainted {
				untainted = append(untainted, node.Name)
			}
		case tainted:
			outside = append(outside, node.Name)
		}
	}
	s.Detail("partition", "%d of %d nodes", inside, len(nodes.Items))
	switch {
	case inside == 0:
		return WithHint(fmt.Errorf("no node has the labels %s of the scheduler's partition: its pods stay Pending", selector),
			"label nodes (kubectl label node …), or remove scheduler.partition")
	case len(untainted) > 0:
		return WithHint(fmt.Errorf("nodes %s are in the scheduler's partition but do not have its taint %s: other schedulers place pods there",
			strings.Join(untainted, ", "), p.Taint.ToString()), "kubectl taint node %s %s", untainted[0], p.Taint.ToString())
	case len(outside) > 0:
		return WithHint(fmt.Errorf("nodes %s have the partition's taint %s but not its labels %s: nobody places pods there",
			strings.Join(outside, ", "), p.Taint.ToString(), selector), "kubectl label node %s %s", outside[0], selector.String())
	}
	return nil
}

func hasTaint(node *corev1.Node, want *corev1.Taint) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == want.Key && t.Value == want.Value && t.Effect == want.Effect
	})
}
