// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

func leaseDuration(l *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 15)) * time.Second
}

func holderOf(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

func findLease(s *observe.Snapshot, name types.NamespacedName) *coordinationv1.Lease {
	for i := range s.Leases.Value {
		if l := &s.Leases.Value[i]; l.Namespace == name.Namespace && l.Name == name.Name {
			return l
		}
	}
	return nil
}

// electing skips where there is no leader election.
func electing(s *observe.Snapshot) error {
	if _, err := second(s); err != nil {
		return err
	}
	if !ptr.Deref(s.Bundle.Scheduler.LeaderElection.LeaderElect, true) {
		return check.Skip("the bundle has scheduler.leaderElection.leaderElect: false")
	}
	return s.Leases.Err
}

func leaseHeld(s *observe.Snapshot) ([]Finding, error) {
	if err := electing(s); err != nil {
		return nil, err
	}
	object := "Lease " + s.Names.Lease.String()
	describe := "kubectl -n " + s.Names.Lease.Namespace + " describe lease " + s.Names.Lease.Name
	l := findLease(s, s.Names.Lease)
	switch {
	case l == nil:
		return one(object, "it does not exist: no replica has ever led", ""), nil
	case holderOf(l) == "":
		return one(object, "it has no holder: no replica leads", describe), nil
	case l.Spec.RenewTime == nil:
		return one(object, holderOf(l)+", its holder, has never renewed it", describe), nil
	case !valid(l, s):
		return one(object, fmt.Sprintf("%s, its holder, has not renewed it since %s", holderOf(l), clock(l.Spec.RenewTime.Time)), describe), nil
	}
	return nil, nil
}

func holderIsOurs(s *observe.Snapshot) ([]Finding, error) {
	if err := electing(s); err != nil {
		return nil, err
	}
	l := findLease(s, s.Names.Lease)
	if l == nil || holderOf(l) == "" {
		return nil, nil
	}
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(holderOf(l), "_")
	for _, p := range all {
		// Processes of this machine share its name, and cannot be told apart.
		if p.Pod == nil || p.Pod.Name == host || p.Pod.Spec.HostNetwork && p.Node == host {
			return nil, nil
		}
	}
	return one("Lease "+s.Names.Lease.String(), holderOf(l)+" holds it, which is no replica of this scheduler", ""), nil
}

// others are the configurations of other schedulers.
func others(s *observe.Snapshot) ([]observe.Configuration, error) {
	all, err := s.Configurations.Get()
	if err != nil {
		return nil, err
	}
	own := types.NamespacedName{Namespace: s.Bundle.Namespace, Name: scheduler.ConfigMapName(s.Bundle)}
	return slices.DeleteFunc(slices.Clone(all), func(c observe.Configuration) bool { return c.ConfigMap == own || c.Err != nil }), nil
}

func leaseClash(s *observe.Snapshot) ([]Finding, error) {
	all, err := others(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, c := range all {
		l := c.Config.LeaderElection
		name := types.NamespacedName{Namespace: cmp.Or(l.ResourceNamespace, metav1.NamespaceSystem), Name: cmp.Or(l.ResourceName, v1alpha1.KubeSchedulerLease)}
		if ptr.Deref(l.LeaderElect, true) && name == s.Names.Lease {
			out = append(out, Finding{Object: c.Where(), Message: "it configures another scheduler with Lease " + name.String()})
		}
	}
	return out, nil
}

func nameClash(s *observe.Snapshot) ([]Finding, error) {
	all, err := others(s)
	if err != nil {
		return nil, err
	}
	names := scheduler.ProfileNames(s.Bundle)
	var out []Finding
	for _, c := range all {
		for _, p := range c.Config.Profiles {
			if n := ptr.Deref(p.SchedulerName, v1alpha1.DefaultSchedulerProfile); slices.Contains(names, n) {
				out = append(out, Finding{Object: c.Where(), Message: "it configures another scheduler with profile " + n})
			}
		}
	}
	return out, nil
}

func stockLease(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	if s.Leases.Err != nil {
		return nil, s.Leases.Err
	}
	stock := findLease(s, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: v1alpha1.KubeSchedulerLease})
	if stock == nil {
		return nil, check.Skip("the default scheduler has no Lease")
	}
	holder := holderOf(stock)
	host, _, _ := strings.Cut(holder, "_")
	for _, p := range all {
		if p.Pod != nil && !p.Pod.Spec.HostNetwork && p.Pod.Name == host {
			return one("Lease kube-system/"+v1alpha1.KubeSchedulerLease, holder+", a replica of the second scheduler, holds it", ""), nil
		}
	}
	if l := findLease(s, s.Names.Lease); l != nil && holder != "" && holderOf(l) == holder {
		return one("Lease kube-system/"+v1alpha1.KubeSchedulerLease, holder+", the leader of the second scheduler, holds it as well", ""), nil
	}
	return nil, nil
}
