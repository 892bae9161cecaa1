// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

func staticServer(t *testing.T, b *v1alpha1.Bundle) *corev1.Pod {
	t.Helper()
	pod, err := component.StaticPod(konnectivity.Server(b))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestServerPod: the static Pod of the default bundle has the fields and arguments of 'Set up Konnectivity service' in the
// Kubernetes documentation.
// It observes KON-04, KON-30, KON-31, KON-32, KON-33, KON-34, KON-35, KON-36, KON-37, KON-38, KON-39, KON-40, KON-41, KON-42,
// KON-43, KON-44, KON-47 and KON-49 of docs/requirements.md.
// It also observes OLD-20 of docs/requirements.md.
func TestServerPod(t *testing.T) {
	pod := staticServer(t, v1alpha1.New())
	c := pod.Spec.Containers[0]
	live, ready := c.LivenessProbe, c.ReadinessProbe
	has := func(arg string) bool { return slices.Contains(c.Args, arg) }
	rows(t, pod, map[string]bool{
		"name and namespace":              pod.APIVersion == "v1" && pod.Kind == "Pod" && pod.Name == "konnectivity-server" && pod.Namespace == "kube-system",
		"priority class and host network": pod.Spec.PriorityClassName == "system-cluster-critical" && pod.Spec.HostNetwork,
		"container name and command":      c.Name == "konnectivity-server-container" && slices.Equal(c.Command, []string{"/proxy-server"}),
		"logs to stderr":                  has("--logtostderr=true"),
		"socket":                          has("--uds-name=/etc/kubernetes/konnectivity-server/konnectivity-server.socket"),
		"deletes a stale socket":          has("--delete-existing-uds-file=true"),
		"certificate for agents":          has("--cluster-cert=/etc/kubernetes/pki/apiserver.crt") && has("--cluster-key=/etc/kubernetes/pki/apiserver.key"),
		"mode":                            has("--mode=grpc"),
		"no server port":                  has("--server-port=0"),
		"agent port":                      has("--agent-port=8132"),
		"admin port":                      has("--admin-port=8133"),
		"health port":                     has("--health-port=8134"),
		"agent authentication": has("--agent-namespace=kube-system") && has("--agent-service-account=konnectivity-agent") &&
			has("--kubeconfig=/etc/kubernetes/konnectivity-server.conf") && has("--authentication-audience=system:konnectivity-server"),
		"liveness probe": live.HTTPGet.Host == "127.0.0.1" && live.HTTPGet.Port.IntValue() == 8134 && live.HTTPGet.Path == "/healthz" &&
			live.HTTPGet.Scheme == "HTTP" && live.InitialDelaySeconds == 30 && live.TimeoutSeconds == 60,
		"readiness probe": ready.HTTPGet.Path == "/readyz",
		"runs as root":    ptr.Deref(pod.Spec.SecurityContext.RunAsUser, -1) == 0,
		"label":           pod.Labels["k8s-app"] == "konnectivity-server",
		"no token":        !ptr.Deref(pod.Spec.AutomountServiceAccountToken, true),
	})
	wantPorts := []corev1.ContainerPort{
		{Name: "agentport", ContainerPort: 8132, HostPort: 8132, Protocol: "TCP"},
		{Name: "adminport", ContainerPort: 8133, HostPort: 8133, Protocol: "TCP"},
		{Name: "healthport", ContainerPort: 8134, HostPort: 8134, Protocol: "TCP"},
	}
	if diff := cmp.Diff(wantPorts, c.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestServerRate: the server's rate of requests to the API server is the bundle's, unless
// extraArgs name another one; each flag is there once.
func TestServerRate(t *testing.T) {
	for want, extra := range map[string][]v1alpha1.Argument{
		"--kubeconfig-qps=100 --kubeconfig-burst=200":        nil,
		"--kubeconfig-qps=7 --kubeconfig-burst=200":          {{Name: "kubeconfig-qps", Value: "7"}},
		"--kubeconfig-qps=7 --kubeconfig-burst=9":            {{Name: "kubeconfig-burst", Value: "9"}, {Name: "kubeconfig-qps", Value: "7"}},
		"--kubeconfig-qps=100 --kubeconfig-burst=200 --v=+4": {{Name: "v", Value: "+4"}},
	} {
		b := v1alpha1.New()
		b.Konnectivity.Server.ExtraArgs = extra
		own := len(konnectivity.OwnServerFlags(b))
		args := component.Args(konnectivity.ServerFlags(b))
		if got := strings.Join(args[own:], " "); got != want {
			t.Errorf("%v: %s, want %s", extra, got, want)
		}
	}
}

// TestServerHealthAddress: metrics and health are for programs on the node alone unless the bundle says otherwise, and the
// kubelet probes an address at which the server listens.
func TestServerHealthAddress(t *testing.T) {
	for bind, want := range map[string]string{"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "192.0.2.1": "192.0.2.1", "::1": "::1"} {
		b := v1alpha1.New()
		if bind != "" {
			b.Konnectivity.Server.HealthBindAddress = bind
		} else {
			bind = "127.0.0.1"
		}
		c := staticServer(t, b).Spec.Containers[0]
		if !slices.Contains(c.Args, "--health-bind-address="+bind) || c.LivenessProbe.HTTPGet.Host != want || c.ReadinessProbe.HTTPGet.Host != want {
			t.Errorf("%s: probes of %s and %s: %v", bind, c.LivenessProbe.HTTPGet.Host, c.ReadinessProbe.HTTPGet.Host, c.Args)
		}
	}
}

// TestMemoryLimits: containers have room for all that the programs' flags allow in their queues, and for the rest 400 MiB at
// least, four times what 5,000 idle connections take. Where the flags have no bound there is no limit, and resources of the
// bundle are left as they are. Nothing limits the CPU.
func TestMemoryLimits(t *testing.T) {
	const rest = 400 << 20
	for name, tc := range map[string]struct {
		args   []v1alpha1.Argument
		own    *corev1.ResourceRequirements
		queues int64
	}{
		"default":    {queues: settings.DefaultTotalBuffer + settings.DefaultLinkBudget},
		"more":       {args: []v1alpha1.Argument{{Name: "total-buffer", Value: "0x100000000"}}, queues: 4<<30 + settings.DefaultLinkBudget},
		"underscore": {args: []v1alpha1.Argument{{Name: "total_buffer", Value: "4294967296"}}, queues: 4<<30 + settings.DefaultLinkBudget},
		"windows":    {args: []v1alpha1.Argument{{Name: "link-budget", Value: "1073741824"}}, queues: settings.DefaultTotalBuffer + 1<<30},
		"no bound":   {args: []v1alpha1.Argument{{Name: "total-buffer", Value: "0"}}},
		"overflow":   {args: []v1alpha1.Argument{{Name: "total-buffer", Value: "9223372036854775807"}}},
		"resources":  {own: &corev1.ResourceRequirements{}},
	} {
		b := &v1alpha1.Bundle{}
		b.Konnectivity.Server.ExtraArgs, b.Konnectivity.Agent.ExtraArgs = tc.args, tc.args
		b.Konnectivity.Server.Resources, b.Konnectivity.Agent.Resources = tc.own, tc.own
		for _, c := range []component.Component{konnectivity.Server(b), konnectivity.Agent(b)} {
			limit, limited := c.Resources.Limits[corev1.ResourceMemory]
			if limited != (tc.queues > 0) || limited && (limit.Value() < tc.queues+rest || limit.Value() > tc.queues+2*rest) {
				t.Errorf("%s: %s has limit %v for %d MiB of queues", name, c.Name, c.Resources.Limits, tc.queues>>20)
			}
			if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
				t.Errorf("%s: %s has a CPU limit", name, c.Name)
			}
		}
	}
}

// TestServerVolumes: the server mounts the PKI directory and the kubeconfig read-only, and the socket directory read-write.
// It observes KON-45 and KON-46 of docs/requirements.md.
func TestServerVolumes(t *testing.T) {
	pod := staticServer(t, v1alpha1.New())
	const conf, dir, pkiDir = "/etc/kubernetes/konnectivity-server.conf", "/etc/kubernetes/konnectivity-server", "/etc/kubernetes/pki"
	wantMounts := []corev1.VolumeMount{
		{Name: "k8s-certs", MountPath: pkiDir, ReadOnly: true},
		{Name: "kubeconfig", MountPath: conf, ReadOnly: true},
		{Name: "konnectivity-uds", MountPath: dir},
	}
	if diff := cmp.Diff(wantMounts, pod.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	hostPath := func(name, path string, kind *corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
	}
	wantVolumes := []corev1.Volume{
		hostPath("k8s-certs", pkiDir, nil),
		hostPath("kubeconfig", conf, ptr.To(corev1.HostPathFileOrCreate)),
		hostPath("konnectivity-uds", dir, ptr.To(corev1.HostPathDirectoryOrCreate)),
	}
	if diff := cmp.Diff(wantVolumes, pod.Spec.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

// TestServerDaemonSet: control planes without static Pods run the server as a DaemonSet.
// It observes KON-30 of docs/requirements.md.
func TestServerDaemonSet(t *testing.T) {
	b := v1alpha1.New()
	b.Konnectivity.Server.Form = v1alpha1.FormDaemonSet
	sets := all[*appsv1.DaemonSet](objects(t, b))
	if len(sets) != 2 || sets[0].Name != "konnectivity-server" {
		t.Fatalf("DaemonSets %v", sets)
	}
	spec := sets[0].Spec.Template.Spec
	rows(t, spec, map[string]bool{
		"on control plane nodes":    maps.Equal(spec.NodeSelector, map[string]string{"node-role.kubernetes.io/control-plane": ""}),
		"whatever their taints":     len(spec.Tolerations) == 1 && spec.Tolerations[0].Operator == "Exists" && spec.Tolerations[0].Key == "",
		"same container as static":  cmp.Equal(spec.Containers, staticServer(t, v1alpha1.New()).Spec.Containers),
		"selector matches the Pods": sets[0].Spec.Selector.MatchLabels["k8s-app"] == sets[0].Spec.Template.Labels["k8s-app"],
	})
}
