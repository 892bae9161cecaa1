// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func validateScheduler(s *Scheduler, p *field.Path) field.ErrorList {
	errs := dnsLabel(s.Name, p.Child("name"))
	errs = append(errs, image(s.Image, p.Child("image"))...)
	errs = append(errs, validateSchedulerForm(s, p)...)
	errs = append(errs, atLeastOne(s.Parallelism, p.Child("parallelism"), "remove it for the default")...)
	errs = append(errs, validateLeaderElection(&s.LeaderElection, p.Child("leaderElection"))...)
	errs = append(errs, validateClientConnection(&s.ClientConnection, p.Child("clientConnection"))...)
	errs = append(errs, validateProfileNames(s, p)...)
	errs = append(errs, validateBuiltInProfiles(&s.BuiltInProfiles, p.Child("builtInProfiles"))...)
	for i := range s.MoreBuiltInProfiles {
		errs = append(errs, validateBuiltInProfiles(&s.MoreBuiltInProfiles[i], p.Child("schedulerProfiles").Index(i))...)
	}
	errs = append(errs, validatePartition(s.Partition, p.Child("partition"))...)
	errs = append(errs, validateAssignments(s, p.Child("assignments"))...)
	errs = append(errs, validatePlugins(&s.Plugins, p.Child("plugins"))...)
	errs = append(errs, port(s.SecurePort, p.Child("securePort"))...)
	errs = append(errs, resources(s.Resources, p.Child("resources"))...)
	errs = append(errs, nodeSelector(s.NodeSelector, p.Child("nodeSelector"))...)
	errs = append(errs, tolerations(s.Tolerations, p.Child("tolerations"))...)
	// This also applies to one replica: during a rollout the new Pod runs alongside the old one, and until then there is no
	// standby.
	if ptr.Deref(s.DelayCacheUntilActive, false) {
		errs = append(errs, field.Invalid(p.Child("delayCacheUntilActive"), true,
			"a Pod would be ready only once it leads, while in a rollout the old one leads until the new one is ready, so that no change would ever arrive; remove it"))
	}
	if s.FeatureGates[GateCoordinatedLeaderElection] {
		errs = append(errs, field.Invalid(p.Child("featureGates").Key(GateCoordinatedLeaderElection), true,
			"would make this scheduler take the default scheduler's lease and stop all scheduling; remove it"))
	}
	return errs
}

// leasesOfOthers are held by Kubernetes' own components.
var leasesOfOthers = []string{KubeSchedulerLease, "kube-controller-manager", "cloud-controller-manager"}

func validateLeaderElection(l *LeaderElection, p *field.Path) field.ErrorList {
	errs := dnsSubdomain(l.LeaseName, p.Child("leaseName"))
	errs = append(errs, dnsLabel(l.LeaseNamespace, p.Child("leaseNamespace"))...)
	if slices.Contains(leasesOfOthers, l.LeaseName) {
		errs = append(errs, field.Invalid(p.Child("leaseName"), l.LeaseName,
			"is the lease of a component of Kubernetes: one of the two would stop working; use a separate name, such as "+DefaultSchedulerName))
	}
	lease, renew, retry := value(l.LeaseDuration), value(l.RenewDeadline), value(l.RetryPeriod)
	if lease < time.Second {
		errs = append(errs, field.Invalid(p.Child("leaseDuration"), lease.String(), "must be at least 1s, as a Lease counts whole seconds"))
	}
	if lease <= renew {
		errs = append(errs, field.Invalid(p.Child("leaseDuration"), lease.String(),
			fmt.Sprintf("must be greater than leaderElection.renewDeadline (%s), or two replicas could lead at once", renew)))
	}
	if retry <= 0 {
		errs = append(errs, field.Invalid(p.Child("retryPeriod"), retry.String(), "must be greater than zero, such as 2s"))
	}
	// client-go's own rule: retries are spread by up to a fifth.
	if renew <= retry+retry/5 {
		errs = append(errs, field.Invalid(p.Child("renewDeadline"), renew.String(),
			fmt.Sprintf("must be greater than 1.2 times leaderElection.retryPeriod (%s), or the leader has one attempt only", retry)))
	}
	return errs
}

func value(d *metav1.Duration) time.Duration { return ptr.Deref(d, metav1.Duration{}).Duration }

func validateClientConnection(c *ClientConnection, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if qps := ptr.Deref(c.QPS, 0); qps <= 0 {
		errs = append(errs, field.Invalid(p.Child("qps"), qps, "must be greater than zero, in requests per second"))
	}
	errs = append(errs, atLeastOne(c.Burst, p.Child("burst"), "in requests")...)
	if types := []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}; !slices.Contains(types, c.ContentType) {
		errs = append(errs, field.NotSupported(p.Child("contentType"), c.ContentType, types))
	}
	return errs
}
