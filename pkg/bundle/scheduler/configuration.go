// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbasev1alpha1 "k8s.io/component-base/config/v1alpha1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Configuration is the scheduler's configuration file, a KubeSchedulerConfiguration
// of kubescheduler.config.k8s.io/v1 in YAML. An empty kubeconfigPath means the
// Pod's own ServiceAccount. All three lock fields are always written, because their
// defaults name the default scheduler's Lease, kube-system/kube-scheduler.
func Configuration(b *v1alpha1.Bundle, kubeconfigPath string) ([]byte, error) {
	b = b.Defaulted()
	data, err := yaml.Marshal(configuration(b, kubeconfigPath))
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of scheduler %s: %w", b.Scheduler.Name, err)
	}
	return data, nil
}

var configurationType = metav1.TypeMeta{APIVersion: schedulerv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}

func configuration(b *v1alpha1.Bundle, kubeconfigPath string) *schedulerv1.KubeSchedulerConfiguration {
	s := &b.Scheduler
	config := &schedulerv1.KubeSchedulerConfiguration{
		TypeMeta:    configurationType,
		Parallelism: s.Parallelism,
		LeaderElection: componentbasev1alpha1.LeaderElectionConfiguration{
			LeaderElect:       s.LeaderElection.LeaderElect,
			ResourceLock:      "leases",
			ResourceName:      s.LeaderElection.LeaseName,
			ResourceNamespace: s.LeaderElection.LeaseNamespace,
			LeaseDuration:     ptr.Deref(s.LeaderElection.LeaseDuration, metav1.Duration{}),
			RenewDeadline:     ptr.Deref(s.LeaderElection.RenewDeadline, metav1.Duration{}),
			RetryPeriod:       ptr.Deref(s.LeaderElection.RetryPeriod, metav1.Duration{}),
		},
		ClientConnection: componentbasev1alpha1.ClientConnectionConfiguration{
			Kubeconfig:         kubeconfigPath,
			AcceptContentTypes: "",
			ContentType:        s.ClientConnection.ContentType,
			QPS:                ptr.Deref(s.ClientConnection.QPS, 0),
			Burst:              ptr.Deref(s.ClientConnection.Burst, 0),
		},
		PercentageOfNodesToScore: s.PercentageOfNodesToScore,
		Profiles:                 Profiles(b),
		DelayCacheUntilActive:    ptr.Deref(s.DelayCacheUntilActive, false),
	}
	return config
}

// ProfileNames are the names that Pods may put into spec.schedulerName, in the
// order of the configuration.
func ProfileNames(b *v1alpha1.Bundle) []string { return b.Defaulted().Scheduler.ProfileNames() }
