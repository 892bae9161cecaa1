// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	componentbaseconfig "k8s.io/component-base/config"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/failoverbarrier"
)

// leaseOf says which Lease decides whether this process leads, as kube-scheduler reads it: flags that are given beat the
// configuration. ok is false without leader election.
func leaseOf(flags *pflag.FlagSet, c componentbaseconfig.LeaderElectionConfiguration) (of failoverbarrier.Lease, ok bool) {
	text := func(flag, configured string) string {
		if f := flags.Lookup(flag); f != nil && f.Changed {
			return f.Value.String()
		}
		return configured
	}
	period := func(flag string, configured time.Duration) time.Duration {
		if d, err := flags.GetDuration(flag); err == nil && flags.Changed(flag) {
			return d
		}
		return configured
	}
	elect := c.LeaderElect
	if on, err := flags.GetBool("leader-elect"); err == nil && flags.Changed("leader-elect") {
		elect = on
	}
	lease, renew, retry := period("leader-elect-lease-duration", c.LeaseDuration.Duration),
		period("leader-elect-renew-deadline", c.RenewDeadline.Duration), period("leader-elect-retry-period", c.RetryPeriod.Duration)
	return failoverbarrier.Lease{
		NamespacedName: types.NamespacedName{
			Namespace: text("leader-elect-resource-namespace", c.ResourceNamespace), Name: text("leader-elect-resource-name", c.ResourceName),
		},
		Slack: lease - renew - retry,
		// A pause between renewals, one that fails until its deadline, and a pause to spare.
		Grace: renew + 2*retry,
	}, elect
}
