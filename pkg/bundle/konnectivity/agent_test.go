package konnectivity_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestAgentDaemonSet: KON-60 to KON-76 on the default bundle.
func TestAgentDaemonSet(t *testing.T) {
	ds := all[*appsv1.DaemonSet](objects(t, v1alpha1.New()))[0]
	pod := ds.Spec.Template.Spec
	c := pod.Containers[0]
	app := map[string]string{"k8s-app": "konnectivity-agent"}
	has := func(arg string) bool { return slices.Contains(c.Args, arg) }
	live, ready := c.LivenessProbe, c.ReadinessProbe
	token := pod.Volumes[0].Projected.Sources[0].ServiceAccountToken
	rows(t, ds, map[string]bool{
		"KON-60": ds.Name == "konnectivity-agent" && ds.Namespace == "kube-system" &&
			maps.Equal(ds.Labels, map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile", "k8s-app": "konnectivity-agent"}) &&
			maps.Equal(ds.Spec.Selector.MatchLabels, app) && maps.Equal(ds.Spec.Template.Labels, app),
		"KON-61": pod.PriorityClassName == "system-cluster-critical" &&
			cmp.Equal(pod.Tolerations, []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: "Exists"}}),
		"KON-62": c.Name == "konnectivity-agent" && slices.Equal(c.Command, []string{"/proxy-agent"}),
		"KON-63": has("--logtostderr=true"),
		"KON-64": has("--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt") && ptr.Deref(pod.AutomountServiceAccountToken, true),
		"KON-65": has("--proxy-server-host=konnectivity-server.kube-system.svc"),
		"KON-66": has("--proxy-server-port=8132"),
		"KON-67": has("--admin-server-port=8133"),
		"KON-68": has("--health-server-port=8134"),
		"KON-69": has("--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token"),
		"KON-70": c.VolumeMounts[0].Name == "konnectivity-agent-token" && c.VolumeMounts[0].MountPath == "/var/run/secrets/tokens",
		"KON-71": live.HTTPGet.Path == "/healthz" && live.HTTPGet.Port.IntValue() == 8134 && live.InitialDelaySeconds == 15 &&
			live.TimeoutSeconds == 15 && ready.HTTPGet.Path == "/readyz",
		"KON-72": pod.ServiceAccountName == "konnectivity-agent",
		"KON-73": token.Path == "konnectivity-agent-token" && token.Audience == "system:konnectivity-server",
		"KON-74": !pod.HostNetwork,
		// A lost answer of the DNS costs a second, not five.
		"DNS":    pod.DNSConfig != nil && pod.DNSConfig.Options[0].Name == "timeout" && *pod.DNSConfig.Options[0].Value == "1",
		"KON-76": ptr.Deref(pod.TerminationGracePeriodSeconds, 30) <= 10,
		// KON-60: never a node without an agent during an update.
		"update": ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() == 0,
	})
}

// TestAgentOptions: KON-60 (Deployment), KON-74, KON-75, KON-78.
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
		"replicas":       ptr.Deref(d.Spec.Replicas, 0) == 3,
		"spread":         pod.Affinity != nil,
		"KON-74":         pod.HostNetwork && pod.DNSPolicy == corev1.DNSClusterFirstWithHostNet,
		"KON-75":         len(pod.Tolerations) == 1 && pod.Tolerations[0].Key == "",
		"KON-78":         slices.Contains(pod.Containers[0].Args, "--agent-identifiers=host=$(NODE_NAME)"),
		"KON-78 env":     len(pod.Containers[0].Env) == 2 && pod.Containers[0].Env[0].Name == "NODE_NAME",
		"budget":         len(all[*policyv1.PodDisruptionBudget](got)) == 1,
		"no DaemonSet":   len(all[*appsv1.DaemonSet](got)) == 0,
		"probe the port": pod.Containers[0].LivenessProbe.HTTPGet.Port.IntValue() == 8144,
	})
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
