// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	componentversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/internal/collector"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/tunnelcondition"
)

// Name of the program.
const Name = "fairlead-scheduler"

// ErrCoordinatedLeaderElection refuses to run with the feature gate CoordinatedLeaderElection. Kubernetes' scheduler
// registers its candidate under the Lease name "kube-scheduler" whatever its configuration says, so with the gate on
// a second scheduler takes the Lease of the stock one and all scheduling stops.
var ErrCoordinatedLeaderElection = errors.New("feature gate CoordinatedLeaderElection must stay off in " + Name +
	": it would take the Lease kube-scheduler of the default scheduler; remove it from --feature-gates")

// garbage may be as much as is alive, which is Go's default, and 64 MiB more. With 1,000 nodes, where 50 MiB are
// live, the collector runs less than half as often; a higher GOGC would cost gigabytes with 5,000 nodes.
var garbage = collector.Tuning{Percent: 100, Extra: 64 << 20, Room: 512 << 20}

// NewCommand returns kube-scheduler's command with the plugins of Options, those that a custom program adds, and six
// things that differ from kube-scheduler's: --version names Fairlead's version too, CoordinatedLeaderElection is
// refused, so is a configuration that would not do what it says and an API server that is too old (see checkStart),
// the garbage collector runs less often (see garbage), events wait for bindings (see politeevents), and a SIGTERM
// leads to exit code 0 without leader election as well (with it, kube-scheduler releases the Lease and exits 0 by
// itself).
func NewCommand(more ...app.Option) *cobra.Command {
	program := &program{options: options.NewOptions(), plugins: append(Options(), more...)}
	cmd := program.command()
	cmd.AddCommand(tunnelcondition.NewCommand())

	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		return guardFeatureGates(program.options.ComponentGlobalsRegistry.Set)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flag("version").Value.String() == "true" {
			fmt.Fprint(cmd.OutOrStdout(), versionText())
			return nil
		}
		if err := checkStart(cmd); err != nil {
			return err
		}
		if garbage.Allowed(os.Getenv, "/") {
			defer garbage.Start()()
		}
		return exitCleanly(func(signals *daemon.Signals) error { return program.run(cmd, signals) })
	}
	return cmd
}

// guardFeatureGates sets the gates from the flags with CoordinatedLeaderElection off, also under AllBeta=true, and
// fails if the flags name it all the same.
func guardFeatureGates(setFromFlags func() error) error {
	off := map[string]bool{string(features.CoordinatedLeaderElection): false}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(off); err != nil {
		return fmt.Errorf("switch off CoordinatedLeaderElection: %w", err)
	}
	if err := setFromFlags(); err != nil {
		return err
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.CoordinatedLeaderElection) {
		return ErrCoordinatedLeaderElection
	}
	return nil
}

// exitCleanly drops the error that kube-scheduler returns after it has ended because of a signal.
func exitCleanly(run func(signals *daemon.Signals) error) error {
	signals := daemon.Notify()
	defer signals.Stop()
	err := run(signals)
	if err != nil && signals.Received() {
		klog.InfoS("Stopped by a signal", "reason", err.Error())
		return nil
	}
	return err
}

// versionText has one line for Fairlead and, as kube-scheduler prints it, one for Kubernetes. The latter is stamped by
// the Makefile; other builds know it as the version of the linked module.
func versionText() string {
	return fmt.Sprintf("%s %s\nKubernetes %s\n", Name, version.Get().Version, kubernetesVersion())
}

func kubernetesVersion() string {
	linked := version.Get().Kubernetes
	if stamped := componentversion.Get().String(); linked == "" || !strings.HasPrefix(stamped, "v0.0.0") {
		return stamped
	}
	return linked
}
