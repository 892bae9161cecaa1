// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names are the names under which a bundle installs its parts.
type Names struct {
	// SchedulerName is what pods name: the first profile's.
	SchedulerName string
	// Lease is the second scheduler's.
	Lease types.NamespacedName

	// Namespace of all that follows.
	Namespace string
	// Scheduler is the second scheduler's Deployment, SchedulerPods selects its pods.
	Scheduler, SchedulerPods string
	// Agents is the agents' DaemonSet or Deployment.
	Agents string
	// ServerPods selects the pods of konnectivity-server, ServerPort is where they serve metrics over HTTP.
	ServerPods, ServerPort string
	// ServerOnLoopback says that ServerPort is open on loopback alone.
	ServerOnLoopback bool

	// SwitchedOff is as in check.Env.
	SwitchedOff map[string]string
}

// NamesOf returns the names that b, which must be defaulted, gives to its parts.
func NamesOf(b *v1alpha1.Bundle) Names {
	second, server := scheduler.Component(b), konnectivity.Server(b)
	n := Names{
		SchedulerName: scheduler.ProfileNames(b)[0],
		Lease:         types.NamespacedName{Namespace: b.Scheduler.LeaderElection.LeaseNamespace, Name: b.Scheduler.LeaderElection.LeaseName},
		Namespace:     b.Namespace,
		Scheduler:     second.Name, SchedulerPods: selectorOf(second.Selector),
		Agents:     konnectivity.Agent(b).Name,
		ServerPods: selectorOf(server.Selector), ServerPort: strconv.Itoa(int(server.PortNumber(konnectivity.PortHealth))),
		ServerOnLoopback: OnLoopback(b),
		SwitchedOff:      map[string]string{},
	}
	if !ptr.Deref(b.Scheduler.Enabled, true) {
		n.SwitchedOff["scheduler"] = "the bundle has scheduler.enabled: false"
	}
	SwitchOffLease(n.SwitchedOff, b)
	if b.Scheduler.Form == v1alpha1.FormStaticPod {
		for _, id := range []string{"scheduler-pending", "scheduler-failover"} {
			n.SwitchedOff[id] = "the bundle has scheduler.form: StaticPod, and only the node can stop a static Pod"
		}
	}
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		n.SwitchedOff["tunnel"] = "the bundle has konnectivity.enabled: false"
	}
	return n
}

// OnLoopback reports whether the servers of b, which must be defaulted, serve metrics on loopback alone.
func OnLoopback(b *v1alpha1.Bundle) bool {
	ip, err := netip.ParseAddr(b.Konnectivity.Server.HealthBindAddress)
	return err == nil && ip.IsLoopback()
}

// SwitchOffLease adds to off the checks that need a Lease, if the bundle has no leader election.
func SwitchOffLease(off map[string]string, b *v1alpha1.Bundle) {
	if !ptr.Deref(b.Scheduler.LeaderElection.LeaderElect, true) {
		for _, id := range []string{"scheduler-lease", "scheduler-failover"} {
			off[id] = "the bundle has scheduler.leaderElection.leaderElect: false"
		}
	}
}

func selectorOf(labels map[string]string) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
}
