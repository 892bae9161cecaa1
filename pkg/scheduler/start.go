// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/failoverbarrier"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// versionTimeout bounds the question for the API server's version. An API server that does not answer is no reason not
// to start: the scheduler waits for it anyway.
const versionTimeout = 5 * time.Second

// checkStart rejects settings with which kube-scheduler would still run: arguments that have no effect, and an API
// server older than the scheduler. It leaves to kube-scheduler what that rejects itself.
func checkStart(cmd *cobra.Command) error {
	path := cmd.Flag("config").Value.String()
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	// A custom image may link further plugins; unknown ones fail when the profile is made.
	loaded, errs, err := profilecheck.CheckFile(data, profilecheck.Options{AnyPlugin: true})
	if err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%s: %w", path, errs.ToAggregate())
	}
	if cmd.Flag("write-config-to").Value.String() != "" {
		return nil // nothing is going to be scheduled, and there may be no API server
	}
	if lease, ok := leaseOf(cmd.Flags(), loaded.LeaderElection); ok {
		if err := checkLease(lease.NamespacedName, loaded.Profiles); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		failoverbarrier.UseLease(lease)
	}
	return checkVersion(cmd.Flag("master").Value.String(), loaded.ClientConnection.Kubeconfig)
}

// errDefaultLease refuses a second scheduler that would wait for the default scheduler's Lease, or take it: of the two, one schedules
// at a time. That is what a configuration does that sets leaderElect alone.
var errDefaultLease = errors.New("leaderElection: the Lease kube-system/kube-scheduler is the default scheduler's, and no profile is named " +
	corev1.DefaultSchedulerName + ": set leaderElection.resourceName to a name of this scheduler's own, such as my-scheduler, or leaderElection.leaderElect to false")

// checkLease checks that only a scheduler with the profile default-scheduler uses the default scheduler's Lease.
func checkLease(lease types.NamespacedName, profiles []config.KubeSchedulerProfile) error {
	if (lease != types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"}) {
		return nil
	}
	for i := range profiles {
		if profiles[i].SchedulerName == corev1.DefaultSchedulerName {
			return nil
		}
	}
	return errDefaultLease
}

// checkVersion asks the API server for its version with the scheduler's own identity.
func checkVersion(master, kubeconfig string) error {
	connection, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
	if err != nil {
		return nil //nolint:nilerr // kube-scheduler makes the same client and reports it
	}
	connection.Timeout = versionTimeout
	client, err := discovery.NewDiscoveryClientForConfig(connection)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	server, err := client.ServerVersion()
	if err != nil {
		klog.InfoS("Could not read the API server's version; the scheduler starts without the check of versions", "err", err)
		return nil
	}
	return profilecheck.CheckVersion(kubernetesVersion(), server.GitVersion)
}
