// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestAgentDaemonSet: the DaemonSet of the default bundle has the fields and arguments of 'Set up Konnectivity service' in the
// Kubernetes documentation.
// It observes KON-06, KON-60, KON-61, KON-62, KON-63, KON-64, KON-65, KON-66, KON-67, KON-68, KON-69, KON-70, KON-71, KON-72,
// KON-73, KON-74 and KON-76 of docs/requirements.md.
// It also observes OLD-20 of docs/requirements.md.
func TestAgentDaemonSet(t *testing.T) {
	ds := all[*appsv1.DaemonSet](objects(t, v1alpha1.New()))[0]
	pod := ds.Spec.Template.Spec
	c := pod.Containers[0]
	app := map[string]string{"k8s-app": "konnectivity-agent"}
	has := func(arg string) bool { return slices.Contains(c.Args, arg) }
	live, ready := c.LivenessProbe, c.ReadinessProbe
	token := pod.Volumes[0].Projected.Sources[0].ServiceAccountToken
	rows(t, ds, map[string]bool{
		"name and labels": ds.Name == "konnectivity-agent" && ds.Namespace == "kube-system" &&
			maps.Equal(ds.Labels, map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile", "k8s-app": "konnectivity-agent"}) &&
			maps.Equal(ds.Spec.Selector.MatchLabels, app) && maps.Equal(ds.Spec.Template.Labels, app),
		"priority class and tolerations": pod.PriorityClassName == "system-cluster-critical" &&
			cmp.Equal(pod.Tolerations, []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: "Exists"}}),
		"container name and command": c.Name == "konnectivity-agent" && slices.Equal(c.Command, []string{"/proxy-agent"}),
		"logs to stderr":             has("--logtostderr=true"),
		"CA certificate":             has("--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
		"server host":                has("--proxy-server-host=konnectivity-server.kube-system.svc"),
		"server port":                has("--proxy-server-port=8132"),
		"admin port":                 has("--admin-server-port=8133"),
		"health port":                has("--health-server-port=8134"),
		"token path":                 has("--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token"),
		"token mount":                c.VolumeMounts[0].Name == "konnectivity-agent-token" && c.VolumeMounts[0].MountPath == "/var/run/secrets/tokens",
		"probes": live.HTTPGet.Path == "/healthz" && live.HTTPGet.Port.IntValue() == 8134 && live.InitialDelaySeconds == 15 &&
			live.TimeoutSeconds == 15 && ready.HTTPGet.Path == "/readyz",
		"service account": pod.ServiceAccountName == "konnectivity-agent",
		"token audience":  token.Path == "konnectivity-agent-token" && token.Audience == "system:konnectivity-server",
		"no host network": !pod.HostNetwork,
		// A lost DNS response costs one second, not five.
		"DNS":                pod.DNSConfig != nil && pod.DNSConfig.Options[0].Name == "timeout" && *pod.DNSConfig.Options[0].Value == "1",
		"short grace period": ptr.Deref(pod.TerminationGracePeriodSeconds, 30) <= 10,
		// No node is without an agent during an update.
		"update": ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() == 0,
	})
}

// TestAgentToken: the only API token that an agent has is one for counting Leases, and without it the Pod still gets the CA
// that verifies the server. Where a container mounts a volume at clients' usual place Kubernetes adds none of its own, and a
// Pod of the ServiceAccount that is not the bundle's gets no token either.
// It observes KON-64 and KON-72 of docs/requirements.md.
func TestAgentToken(t *testing.T) {
	for _, counting := range []bool{false, true} {
		b := v1alpha1.New()
		b.Konnectivity.LeaseCounting = ptr.To(counting)
		got := objects(t, b)
		pod := all[*appsv1.DaemonSet](got)[0].Spec.Template.Spec
		if ptr.Deref(pod.AutomountServiceAccountToken, true) || ptr.Deref(all[*corev1.ServiceAccount](got)[0].AutomountServiceAccountToken, true) {
			t.Error("Kubernetes mounts a token by itself")
		}
		ca, tokens := false, 0
		for _, v := range pod.Volumes {
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					i := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
					ca = s.ConfigMap.Name == "kube-root-ca.crt" && s.ConfigMap.Items[0].Key == "ca.crt" &&
						slices.Contains(pod.Containers[0].Args, "--ca-cert="+pod.Containers[0].VolumeMounts[i].MountPath+"/"+s.ConfigMap.Items[0].Path)
				}
				if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == "" {
					tokens++
				}
			}
		}
		if !ca || (tokens == 1) != counting {
			t.Errorf("leaseCounting %v: --ca-cert is mounted: %v, %d tokens for the API: %+v", counting, ca, tokens, pod.Volumes)
		}
	}
}

// TestAgentNetworkPolicy: agents' Pods are reached at the port that the kubelet probes, and at no other, wherever that port is;
// their own connections are not limited. Pods of the host's network cannot have a policy, and it can be turned off.
func TestAgentNetworkPolicy(t *testing.T) {
	b := v1alpha1.New()
	b.Konnectivity.Agent.HealthPort = 9136
	got := objects(t, b)
	policies := all[*networkingv1.NetworkPolicy](got)
	if len(policies) != 1 {
		t.Fatalf("%d policies", len(policies))
	}
	spec, pod := policies[0].Spec, all[*appsv1.DaemonSet](got)[0].Spec.Template
	probed := pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port
	rows(t, spec, map[string]bool{
		"selects the agents": policies[0].Namespace == b.Namespace && maps.Equal(spec.PodSelector.MatchLabels, pod.Labels),
		"egress is open":     slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}),
		"one port from anywhere": len(spec.Ingress) == 1 && len(spec.Ingress[0].From) == 0 && len(spec.Ingress[0].Ports) == 1 &&
			*spec.Ingress[0].Ports[0].Port == probed && *spec.Ingress[0].Ports[0].Protocol == corev1.ProtocolTCP,
	})
	off, host := v1alpha1.New(), v1alpha1.New()
	off.Konnectivity.Agent.NetworkPolicy = ptr.To(false)
	host.Konnectivity.Agent.HostNetwork = ptr.To(true)
	for _, b := range []*v1alpha1.Bundle{off, host} {
		if got := all[*networkingv1.NetworkPolicy](objects(t, b)); len(got) > 0 {
			t.Errorf("a policy: %v", got)
		}
	}
}

// TestAgentOptions: agents run as a Deployment, on the host network, with other tolerations and with identifiers, if the bundle
// says so.
// It observes KON-60, KON-75 and KON-78 of docs/requirements.md.
func TestAgentOptions(t *testing.T) {
	b := v1alpha1.New()
	a := &b.Konnectivity.Agent
	a.Form, a.Replicas = v1alpha1.FormDeployment, ptr.To[int32](3)
	a.HostNetwork, a.AdminPort, a.HealthPort = ptr.To(true), 8143, 8144
	a.Tolerations = &v1alpha1.Tolerations{{Operator: corev1.TolerationOpExists}}
	a.Identifiers = "host=$(NODE_NAME)"
	got := objects(t, b)
	d := all[*appsv1.Deployment](got)[0]
	pod := d.Spec.Template.Spec
	rows(t, d, map[string]bool{
		"replicas":           ptr.Deref(d.Spec.Replicas, 0) == 3,
		"spread":             pod.Affinity != nil,
		"host network":       pod.HostNetwork && pod.DNSPolicy == corev1.DNSClusterFirstWithHostNet,
		"tolerations":        len(pod.Tolerations) == 1 && pod.Tolerations[0].Key == "",
		"identifiers":        slices.Contains(pod.Containers[0].Args, "--agent-identifiers=host=$(NODE_NAME)"),
		"env of identifiers": len(pod.Containers[0].Env) == 2 && pod.Containers[0].Env[0].Name == "NODE_NAME",
		"budget":             len(all[*policyv1.PodDisruptionBudget](got)) == 1,
		"budget of its own":  selectsOwn(t, all[*policyv1.PodDisruptionBudget](got)[0].Spec.Selector, d.Spec.Template.Labels),
		"no DaemonSet":       len(all[*appsv1.DaemonSet](got)) == 0,
		"probe the port":     pod.Containers[0].LivenessProbe.HTTPGet.Port.IntValue() == 8144,
	})
}

// selectsOwn reports whether a selector matches Pods with these labels, and not those of a TunnelPool, which have one more.
func selectsOwn(t *testing.T, selector *metav1.LabelSelector, own map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	ofPool := maps.Clone(own)
	ofPool[konnectivity.PoolLabel] = "edge"
	return s.Matches(labels.Set(own)) && !s.Matches(labels.Set(ofPool))
}

// TestPodsOf: the Pods of the bundle's agents are not those of a TunnelPool, whose own Pods are still selected.
func TestPodsOf(t *testing.T) {
	agents := konnectivity.Agent(v1alpha1.New())
	pool := maps.Clone(agents.Selector)
	pool[konnectivity.PoolLabel] = "edge"
	for name, tc := range map[string]struct{ workload, pods, others map[string]string }{
		"bundle": {agents.Selector, agents.PodLabels, pool},
		"pool":   {pool, pool, agents.PodLabels},
	} {
		s, err := labels.Parse(konnectivity.PodsOf(metav1.LabelSelector{MatchLabels: tc.workload}, tc.pods))
		if err != nil || !s.Matches(labels.Set(tc.pods)) || s.Matches(labels.Set(tc.others)) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// TestHostNetworkUpdate: on the host network two agents of one node cannot run at
// once.
func TestHostNetworkUpdate(t *testing.T) {
	b := v1alpha1.New()
	b.Konnectivity.Agent.HostNetwork = ptr.To(true)
	if rolling := all[*appsv1.DaemonSet](objects(t, b))[0].Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxSurge != nil {
		t.Errorf("maxSurge %v", rolling.MaxSurge)
	}
}
