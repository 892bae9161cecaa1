// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// Scheduler configures the second scheduler.
type Scheduler struct {
	// enabled renders the second scheduler. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// name of the Deployment and the ServiceAccount, and prefix of the other
	// objects. Default: my-scheduler. It is not what Pods name: see Profiles.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// image of the scheduler; must hold /usr/local/bin/kube-scheduler. Default: this
	// release's fairlead-scheduler. A stock kube-scheduler image works too, for
	// profiles without Fairlead's plugins; its tag is taken as its version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// form is Deployment or StaticPod. Default: Deployment. A StaticPod runs on every
	// control plane node that gets its files, as kube-scheduler does, and needs no
	// other scheduler to start: `fairlead render -o dir` writes the files, and no
	// command installs them on nodes.
	// +optional
	Form Form `json:"form,omitempty"`

	// kubeconfig on the node, of user fairlead:NAME, which the rights are bound to.
	// For form StaticPod only. Default: /etc/kubernetes/NAME.conf.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// replicas of the Deployment. Default: 2, one leader and one standby; 1 without
	// leader election. Not used with form StaticPod.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// leaderElection configures the Lease by which replicas elect one leader.
	// +optional
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`

	// clientConnection limits the scheduler's requests to the API server.
	// +optional
	ClientConnection ClientConnection `json:"clientConnection,omitempty"`

	// parallelism is the number of goroutines that filter and score nodes.
	// Default: 16, as in kube-scheduler. They share the CPUs that the container may
	// use; on machines with many more cores and thousands of nodes more may help.
	// +optional
	Parallelism *int32 `json:"parallelism,omitempty"`

	// percentageOfNodesToScore stops looking for further feasible nodes once this
	// share of all nodes was found, in percent. Default: 0, meaning that
	// kube-scheduler computes it from the size of the cluster: all of 100 nodes, 42
	// % of 1,000, 10 % of 5,000. A higher value finds better nodes and costs CPU for
	// each Pod. A profile's own value overrides this one.
	// +optional
	PercentageOfNodesToScore *int32 `json:"percentageOfNodesToScore,omitempty"`

	// profiles are passed to kube-scheduler as they are: any legal profile of
	// kubescheduler.config.k8s.io/v1 will do. Default: none, but for an image
	// that is not called fairlead-scheduler and without built-in profiles one with
	// schedulerName my-scheduler and the default plugins. Every profile needs a
	// schedulerName; that is the name Pods put into spec.schedulerName.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=array
	// +kubebuilder:validation:MaxItems=256
	Profiles []schedulerv1.KubeSchedulerProfile `json:"profiles,omitempty"`

	// builtInProfiles come after Profiles. Default: none if Profiles is set,
	// otherwise standard, unless the image may lack Fairlead's plugins.
	// +optional
	BuiltInProfiles BuiltInProfiles `json:"builtInProfiles,omitempty"`

	// MoreBuiltInProfiles come last. The operator adds those of SchedulerProfile objects;
	// a file has none.
	MoreBuiltInProfiles []BuiltInProfiles `json:"-"`

	// Open means that others add profiles, so that Assignments may name profiles that are
	// not here. The operator sets it; ValidateAssigned checks the names then.
	Open bool `json:"-"`

	// plugins are Fairlead's plugins in the built-in profiles.
	// +optional
	Plugins SchedulerPlugins `json:"plugins,omitempty"`

	// partition reserves nodes for the scheduler. Default: none; it shares all
	// nodes with the default scheduler.
	// +optional
	Partition *Partition `json:"partition,omitempty"`

	// assignments make Pods name a profile without a change of their manifests. Of
	// several that select a Pod the first one counts. Each takes Kubernetes 1.36 or
	// newer. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Assignments []Assignment `json:"assignments,omitempty"`

	// delayCacheUntilActive keeps caches empty until the replica leads. Default:
	// false, and true is refused: kube-scheduler would not be ready before it leads,
	// and the old Pod of a rollout leads until the new one is ready.
	// +optional
	DelayCacheUntilActive *bool `json:"delayCacheUntilActive,omitempty"`

	// featureGates of the scheduler. CoordinatedLeaderElection is always written as
	// false: with it on, the scheduler registers under the lease name kube-scheduler
	// whatever the configuration says and takes the default scheduler's place.
	// +optional
	// +kubebuilder:validation:MaxProperties=512
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// securePort serves health and metrics over HTTPS. Default: 10259.
	// +optional
	SecurePort int32 `json:"securePort,omitempty"`

	// resources of the container. Default: requests of 100m CPU and 128Mi memory
	// and no limits, because a leader that is throttled or killed for memory stops
	// all its scheduling.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// nodeSelector of the Pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods. Default: CriticalAddonsOnly and the control plane
	// taint, so that it runs next to the default scheduler where there is room.
	// +optional
	Tolerations *Tolerations `json:"tolerations,omitempty"`

	// extraArgs are further flags of kube-scheduler. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	ExtraArgs []Argument `json:"extraArgs,omitempty"`
}

// LeaderElection configures one Lease and how it is held.
// +kubebuilder:validation:XValidation:rule="!has(self.leaseName) || self.leaseName != 'kube-scheduler'",fieldPath=".leaseName",message="is the default scheduler's Lease: choose another name"
type LeaderElection struct {
	// leaderElect has replicas elect a leader. Default: true. false takes one replica
	// only, needs no Lease and no right to one, and schedules nothing while the Pod is
	// replaced: the old one has to end before the new one starts.
	// +optional
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// leaseName is the Lease's name. Default: the scheduler's name. Never
	// kube-scheduler in kube-system: that is the default scheduler's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LeaseName string `json:"leaseName,omitempty"`

	// leaseNamespace is the Lease's namespace, which must exist. Default: the
	// bundle's namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LeaseNamespace string `json:"leaseNamespace,omitempty"`

	// leaseDuration is how long a standby waits after the last renewal that it saw
	// before it takes over. Default: 12s, not Kubernetes' 15s: a standby looks
	// every RetryPeriod, stretched at random up to 2.2 times, so that after a
	// leader is killed the next one leads after LeaseDuration plus 4.4 RetryPeriods
	// at the latest. That is 16.4 s here and 23.8 s with 15s, 10s and 2s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="is no positive duration such as 12s"
	LeaseDuration *metav1.Duration `json:"leaseDuration,omitempty"`

	// renewDeadline is how long the leader tries to renew before it gives up.
	// Default: 8s. Must be below LeaseDuration.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="is no positive duration such as 12s"
	RenewDeadline *metav1.Duration `json:"renewDeadline,omitempty"`

	// retryPeriod is the pause between attempts. Default: 1s. RenewDeadline must
	// exceed it by more than a fifth (client-go adds that much jitter).
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="is no positive duration such as 12s"
	RetryPeriod *metav1.Duration `json:"retryPeriod,omitempty"`
}

// ClientConnection limits requests to the API server. With a configuration file
// kube-scheduler ignores the flags --kube-api-qps and so on; these fields replace
// them.
type ClientConnection struct {
	// qps is the sustained rate, in requests per second. Default: 500. The
	// upstream default of 50 caps a default install at about 50 Pods per second,
	// since each Pod needs a bind and an event.
	// +optional
	QPS *float32 `json:"qps,omitempty"`

	// burst above that rate, in requests. Default: 1000.
	// +optional
	Burst *int32 `json:"burst,omitempty"`

	// contentType of requests: application/vnd.kubernetes.protobuf or
	// application/json. Default: application/vnd.kubernetes.protobuf, which costs the
	// scheduler and the API server less CPU and memory; JSON is for looking at traffic.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ContentType string `json:"contentType,omitempty"`
}
