// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config"
)

// TestLeaseOf: the barrier asks for the Lease that kube-scheduler holds.
func TestLeaseOf(t *testing.T) {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	configured := componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect: true, LeaseDuration: seconds(15), RenewDeadline: seconds(10), RetryPeriod: seconds(2),
		ResourceNamespace: "kube-system", ResourceName: "my-scheduler",
	}
	for name, tc := range map[string]struct {
		args  []string
		lease string
		slack time.Duration
		grace time.Duration
		ok    bool
	}{
		"configuration": {nil, "kube-system/my-scheduler", 3 * time.Second, 14 * time.Second, true},
		"flags": {[]string{"--leader-elect-resource-name=other", "--leader-elect-resource-namespace=ns", "--leader-elect-lease-duration=30s", "--leader-elect-retry-period=1s"},
			"ns/other", 19 * time.Second, 12 * time.Second, true},
		"no election": {[]string{"--leader-elect=false"}, "kube-system/my-scheduler", 3 * time.Second, 14 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			lease, ok := leaseOf(cmd.Flags(), configured)
			if lease.String() != tc.lease || lease.Slack != tc.slack || lease.Grace != tc.grace || ok != tc.ok {
				t.Errorf("%s, %s, %s, %t", lease, lease.Slack, lease.Grace, ok)
			}
		})
	}
}
