// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

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
		failoverbarrier.UseLease(lease)
	}
	return checkVersion(cmd.Flag("master").Value.String(), loaded.ClientConnection.Kubeconfig)
}

// checkVersion asks the API server for its version with the scheduler's own identity.
func checkVersion(master, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
	if err != nil {
		return nil //nolint:nilerr // kube-scheduler makes the same client and reports it
	}
	config.Timeout = versionTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
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
