// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// ConfigMap holds its configuration, in clusters where it does. Without a name the check does not read other schedulers' ConfigMaps.
	ConfigMap types.NamespacedName
	// Partition is its nodes; nil if it shares all nodes.
	Partition *v1alpha1.Partition
}

// CoexistenceOf says what a bundle's scheduler has for itself.
func CoexistenceOf(b *v1alpha1.Bundle) Coexistence {
	b = b.Defaulted()
	return Coexistence{
		SchedulerNames: scheduler.ProfileNames(b),
		ConfigMap:      types.NamespacedName{Namespace: b.Namespace, Name: scheduler.ConfigMapName(b)},
		Partition:      b.Scheduler.Partition,
	}
}

// schedulerCoexistence proves that no other scheduler in the cluster serves the second scheduler's names or takes its Lease, and that the nodes of
// its partition match the bundle. A device that is allocated twice proves that another scheduler gives out devices next to it. It warns of pods that
// name a scheduler which does not exist.
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
	s.warnOfIgnoredPods(ctx)
	if err := s.partitionHolds(ctx); err != nil {
		return err
	}
	return s.noDeviceTwice(ctx)
}

// ours says whether an identity is that of a replica, or was at that time.
func (s *Scope) ours(ctx context.Context, identity string, at time.Time) (bool, error) {
	ours, err := s.OwnsIdentity(ctx, identity)
	if ours || err != nil || s.FormerIdentity == nil {
		return ours, err
	}
	return s.FormerIdentity(ctx, identity, at)
}

// noForeignConfiguration reads all configurations of schedulers that ConfigMaps hold.
func (s *Scope) noForeignConfiguration(ctx context.Context) error {
	if s.Coexistence.ConfigMap.Name == "" {
		s.Detail("other-configurations", "not checked: the second scheduler's ConfigMap is unknown")
		return nil
	}
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

// foreignConfiguration compares one configuration's names and Lease with ours. It ignores text that is not a valid configuration, because no
// scheduler can use that.
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
	setDefault(&lease.Name, v1alpha1.KubeSchedulerLease)
	if ptr.Deref(l.LeaderElect, true) && lease == s.Lease {
		return WithHint(fmt.Errorf("%s configures another scheduler with Lease %s, which is ours", where, lease),
			"one of the two schedulers never leads: give the other its own Lease")
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
	live := scheduler.NodesOf(p, nodes.Items)
	s.Detail("partition", "%d of %d nodes", len(live.Inside), len(nodes.Items))
	if p.Taint == nil {
		s.Detail("partition-taint", "none in the bundle: other schedulers still place their pods on these nodes")
	}
	if problem, hint := live.Problem(); problem != "" {
		return WithHint(errors.New(problem), "%s", hint)
	}
	return nil
}
