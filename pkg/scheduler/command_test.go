// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler"
)

const lease = "my-scheduler"

// The program rejects the feature gate: with it on, kube-scheduler takes the default
// scheduler's Lease.
// It observes SCHED-37 of docs/requirements.md.
func TestCoordinatedLeaderElectionIsRefused(t *testing.T) {
	for _, gates := range []string{
		"CoordinatedLeaderElection=true",
		"kube:CoordinatedLeaderElection=true",
		"AllBeta=true,CoordinatedLeaderElection=true",
	} {
		t.Run(gates, func(t *testing.T) {
			t.Parallel()
			p := daemontest.Start(t, nil, binary(t), "--feature-gates="+gates)
			if code := p.ExitCode(t, patience); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, want := range []string{"CoordinatedLeaderElection must stay off", "--feature-gates"} {
				if !strings.Contains(p.Output(), want) {
					t.Errorf("%q is missing in %q", want, p.Output())
				}
			}
		})
	}
}

// The program accepts flags that switch gates on in groups, and flags that switch this gate
// off explicitly.
// It observes SCHED-37 of docs/requirements.md.
func TestCoordinatedLeaderElectionStaysOff(t *testing.T) {
	for _, gates := range []string{"", "AllBeta=true", "AllAlpha=true,AllBeta=true", "CoordinatedLeaderElection=false"} {
		t.Run(gates, func(t *testing.T) {
			restoreGates(t)
			cmd := scheduler.NewCommand()
			if gates != "" {
				if err := cmd.ParseFlags([]string{"--feature-gates=" + gates}); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.PersistentPreRunE(cmd, nil); err != nil {
				t.Fatal(err)
			}
			if utilfeature.DefaultFeatureGate.Enabled(features.CoordinatedLeaderElection) {
				t.Error("CoordinatedLeaderElection is on")
			}
		})
	}
}

// restoreGates gives all feature gates of the process their present values when the test ends: the flag changes them for all tests.
func restoreGates(t *testing.T) {
	t.Helper()
	gate := utilfeature.DefaultMutableFeatureGate
	before, unset := map[string]bool{}, []featuregate.Feature{}
	for f := range gate.GetAll() {
		before[string(f)] = gate.Enabled(f)
		if !gate.ExplicitlySet(f) {
			unset = append(unset, f)
		}
	}
	t.Cleanup(func() {
		if err := gate.SetFromMap(before); err != nil { // at once, because gates depend on each other
			t.Error(err)
		}
		for _, f := range unset {
			if err := gate.ResetFeatureValueToDefault(f); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestVersion: the program shows the versions that a release stamps into it, and a build without any shows that of its modules.
func TestVersion(t *testing.T) {
	stamped := func(t *testing.T) string {
		testutil.Full(t, "links the program a second time")
		dir := t.TempDir()
		ldflags := "-X github.com/fairlead-dev/fairlead/pkg/internal/version.version=v1.2.3 " + components.KubernetesLDFlags("v1.36.99")
		if err := daemontest.Build(t.Context(), dir, []string{"github.com/fairlead-dev/fairlead/cmd/fairlead-scheduler"}, "-ldflags="+ldflags); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, scheduler.Name)
	}
	tests := []struct {
		name   string
		binary func(*testing.T) string
		want   string
	}{
		{"stamped", stamped, "fairlead-scheduler v1.2.3\nKubernetes v1.36.99\n"},
		{"not stamped", binary, "fairlead-scheduler v0.0.0-devel\nKubernetes " + components.KubernetesVersion() + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := daemontest.Start(t, nil, tt.binary(t), "--version")
			if code := p.ExitCode(t, patience); code != 0 || p.Output() != tt.want {
				t.Errorf("exit code %d and %q, want 0 and %q", code, p.Output(), tt.want)
			}
		})
	}
}

// A SIGTERM releases the Lease, so that another replica takes over at once, and ends with
// exit code 0. A Lease that is not released would be taken over after half an hour.
// It observes SCHED-31 and SCHED-36 of docs/requirements.md.
func TestSIGTERM(t *testing.T) {
	cp := newCluster(t)
	t.Run("leader and standby", func(t *testing.T) {
		first := startScheduler(t, cp, true)
		waitForHolder(t, cp, patience, func(holder string) bool { return holder != "" })
		leader := holder(t.Context(), cp)
		second := startScheduler(t, cp, true)
		daemontest.Eventually(t, patience, func() error {
			if !strings.Contains(second.Output(), "Attempting to acquire leader lease") {
				return fmt.Errorf("the standby does not wait for the Lease")
			}
			return nil
		})

		waitForRenewal(t, cp)
		terminate(t, first)
		waitForHolder(t, cp, patience, func(holder string) bool { return holder != "" && holder != leader })
		waitForRenewal(t, cp)
		terminate(t, second)
		if got := holder(t.Context(), cp); got != "" {
			t.Errorf("the Lease is still held by %q", got)
		}
	})
	t.Run("standby", func(t *testing.T) {
		leading := startScheduler(t, cp, true)
		waitForHolder(t, cp, patience, func(holder string) bool { return holder != "" })
		before := holder(t.Context(), cp)
		standby := startScheduler(t, cp, true)
		daemontest.Eventually(t, patience, func() error {
			if !strings.Contains(standby.Output(), "Attempting to acquire leader lease") {
				return fmt.Errorf("the standby does not wait for the Lease")
			}
			return nil
		})
		terminate(t, standby)
		if got := holder(t.Context(), cp); got != before || !leading.Running() {
			t.Errorf("the holder changed from %q to %q", before, got)
		}
	})
	t.Run("without leader election", func(t *testing.T) {
		p := startScheduler(t, cp, false)
		daemontest.Eventually(t, patience, func() error {
			if !strings.Contains(p.Output(), "Serving securely") {
				return fmt.Errorf("not serving yet")
			}
			return nil
		})
		terminate(t, p)
	})
}

func startScheduler(t *testing.T, cp cluster, leaderElect bool) *daemontest.Process {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	content := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: ` + strconv.Quote(cp.Kubeconfig) + `}
leaderElection: {leaderElect: ` + strconv.FormatBool(leaderElect) + `, leaseDuration: 30m, resourceNamespace: kube-system, resourceName: ` + lease + `}
profiles: [{schedulerName: my-scheduler}]
`
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return daemontest.Start(t, nil, binary(t), "--config="+config, "--bind-address=127.0.0.1", "--secure-port="+daemontest.Ports(t, 1)[0])
}

func terminate(t *testing.T, p *daemontest.Process) {
	t.Helper()
	start := time.Now()
	p.Terminate(t)
	if code := p.ExitCode(t, patience); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	t.Logf("exited after %v", time.Since(start).Round(time.Millisecond))
}

func waitForHolder(t *testing.T, cp cluster, limit time.Duration, want func(holder string) bool) {
	t.Helper()
	daemontest.Eventually(t, limit, func() error {
		if got := holder(t.Context(), cp); !want(got) {
			return fmt.Errorf("the holder of the Lease is %q", got)
		}
		return nil
	})
}

// waitForRenewal returns when the Lease has just been renewed. A leader that is stopped while
// a renewal is on its way, as it is right after the Lease was acquired, cannot release
// it: client-go gives up after the conflict.
func waitForRenewal(t *testing.T, cp cluster) {
	t.Helper()
	renewed := func() (at time.Time) {
		l, err := cp.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), lease, metav1.GetOptions{})
		if err == nil && l.Spec.RenewTime != nil {
			at = l.Spec.RenewTime.Time
		}
		return at
	}
	before := renewed()
	daemontest.Eventually(t, patience, func() error {
		if before.IsZero() || !renewed().After(before) {
			return fmt.Errorf("the Lease was renewed at %v for the last time", before)
		}
		return nil
	})
}

// holder is the Lease's holder, "" if there is none.
func holder(ctx context.Context, cp cluster) string {
	l, err := cp.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
