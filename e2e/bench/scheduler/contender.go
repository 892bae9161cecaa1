// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbasev1alpha1 "k8s.io/component-base/config/v1alpha1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// contender is one scheduler with one workload.
type contender struct {
	name, workload, program string
	// profile is the schedulerName of the pods.
	profile string
	config  configFunc
}

// configFunc makes a configuration file for a kubeconfig.
type configFunc func(kubeconfig string) ([]byte, error)

// Workloads.
const (
	services = "services" // small pods behind Services, which are spread
	batch    = "batch"    // equal pods, one per node
	mixed    = "mixed"    // pods of many sizes, for packing
)

// Schedulers.
const (
	documented = "documented" // kube-scheduler as the documentation installs it
	stock      = "stock"      // the same with Fairlead's request limits
	ours       = "fairlead"
	// sameShare is ours with kube-scheduler's default for the number of scored nodes. It shows
	// the cost of the plugins.
	sameShare = "same share"
	// standard is ours with kube-scheduler's default profile plus Fairlead's plugins.
	standard = "standard"
)

func contenders() []contender {
	return []contender{
		{documented, services, "kube-scheduler", "my-scheduler", stockConfig(nil)},
		{stock, services, "kube-scheduler", "my-scheduler", stockConfig(v1alpha1.New())},
		{ours, services, "fairlead-scheduler", v1alpha1.DefaultSpreadProfile, ownConfig(v1alpha1.BuiltInProfiles{Spread: &v1alpha1.SpreadProfile{}})},
		{sameShare, services, "fairlead-scheduler", v1alpha1.DefaultSpreadProfile, ownConfig(v1alpha1.BuiltInProfiles{
			Spread: &v1alpha1.SpreadProfile{PercentageOfNodesToScore: ptr.To[int32](0)}})},
		{standard, services, "fairlead-scheduler", "my-scheduler", ownConfig(v1alpha1.BuiltInProfiles{Standard: &v1alpha1.StandardProfile{}})},
		{documented, batch, "kube-scheduler", "my-scheduler", stockConfig(nil)},
		{stock, batch, "kube-scheduler", "my-scheduler", stockConfig(v1alpha1.New())},
		{ours, batch, "fairlead-scheduler", v1alpha1.DefaultBatchProfile, ownConfig(v1alpha1.BuiltInProfiles{Batch: &v1alpha1.BatchProfile{}})},
		{documented, mixed, "kube-scheduler", "my-scheduler", stockConfig(nil)},
		{stock, mixed, "kube-scheduler", "my-scheduler", stockConfig(v1alpha1.New())},
		{ours, mixed, "fairlead-scheduler", v1alpha1.DefaultBinpackProfile, ownConfig(v1alpha1.BuiltInProfiles{Binpack: &v1alpha1.BinpackProfile{}})},
	}
}

// stockConfig is the configuration file from 'Configure Multiple Schedulers' in the Kubernetes
// documentation, with the request limits of a bundle if there is one.
func stockConfig(limits *v1alpha1.Bundle) configFunc {
	return func(kubeconfig string) ([]byte, error) {
		config := &schedulerv1.KubeSchedulerConfiguration{
			TypeMeta:         metav1.TypeMeta{APIVersion: schedulerv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"},
			Profiles:         []schedulerv1.KubeSchedulerProfile{{SchedulerName: ptr.To("my-scheduler")}},
			LeaderElection:   componentbasev1alpha1.LeaderElectionConfiguration{LeaderElect: ptr.To(false)},
			ClientConnection: componentbasev1alpha1.ClientConnectionConfiguration{Kubeconfig: kubeconfig},
		}
		if limits != nil {
			c := limits.Scheduler.ClientConnection
			config.ClientConnection.QPS, config.ClientConnection.Burst = *c.QPS, *c.Burst
		}
		return yaml.Marshal(config)
	}
}

// defaultConfig is kube-scheduler as it runs in every cluster.
func defaultConfig(kubeconfig string) ([]byte, error) {
	return yaml.Marshal(&schedulerv1.KubeSchedulerConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: schedulerv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"},
		LeaderElection:   componentbasev1alpha1.LeaderElectionConfiguration{LeaderElect: ptr.To(true)},
		ClientConnection: componentbasev1alpha1.ClientConnectionConfiguration{Kubeconfig: kubeconfig},
	})
}

// ownConfig is what the bundle renders for one built-in profile.
func ownConfig(profiles v1alpha1.BuiltInProfiles) configFunc {
	return func(kubeconfig string) ([]byte, error) {
		b := &v1alpha1.Bundle{}
		b.Scheduler.BuiltInProfiles = profiles
		return render(b, kubeconfig)
	}
}

func render(b *v1alpha1.Bundle, kubeconfig string) ([]byte, error) {
	b = b.Defaulted()
	if errs := scheduler.Validate(b); len(errs) > 0 {
		return nil, fmt.Errorf("the profile is invalid: %w", errs.ToAggregate())
	}
	return scheduler.Configuration(b, kubeconfig)
}
