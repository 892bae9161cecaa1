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
)

func staticServer(t *testing.T, b *v1alpha1.Bundle) *corev1.Pod {
	t.Helper()
	pod, err := component.StaticPod(konnectivity.Server(b))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestServerPod: KON-30 to KON-49 on the default bundle.
func TestServerPod(t *testing.T) {
	pod := staticServer(t, v1alpha1.New())
	c := pod.Spec.Containers[0]
	live, ready := c.LivenessProbe, c.ReadinessProbe
	has := func(arg string) bool { return slices.Contains(c.Args, arg) }
	rows(t, pod, map[string]bool{
		"KON-30": pod.APIVersion == "v1" && pod.Kind == "Pod" && pod.Name == "konnectivity-server" && pod.Namespace == "kube-system",
		"KON-31": pod.Spec.PriorityClassName == "system-cluster-critical" && pod.Spec.HostNetwork,
		"KON-32": c.Name == "konnectivity-server-container" && slices.Equal(c.Command, []string{"/proxy-server"}),
		"KON-33": has("--logtostderr=true"),
		"KON-34": has("--uds-name=/etc/kubernetes/konnectivity-server/konnectivity-server.socket"),
		"KON-35": has("--delete-existing-uds-file=true"),
		"KON-36": has("--cluster-cert=/etc/kubernetes/pki/apiserver.crt") && has("--cluster-key=/etc/kubernetes/pki/apiserver.key"),
		"KON-37": has("--mode=grpc"),
		"KON-38": has("--server-port=0"),
		"KON-39": has("--agent-port=8132"),
		"KON-40": has("--admin-port=8133"),
		"KON-41": has("--health-port=8134"),
		"KON-42": has("--agent-namespace=kube-system") && has("--agent-service-account=konnectivity-agent") &&
			has("--kubeconfig=/etc/kubernetes/konnectivity-server.conf") && has("--authentication-audience=system:konnectivity-server"),
		"KON-43": live.HTTPGet.Host == "127.0.0.1" && live.HTTPGet.Port.IntValue() == 8134 && live.HTTPGet.Path == "/healthz" &&
			live.HTTPGet.Scheme == "HTTP" && live.InitialDelaySeconds == 30 && live.TimeoutSeconds == 60,
		"KON-41 readiness": ready.HTTPGet.Path == "/readyz",
		"KON-47":           ptr.Deref(pod.Spec.SecurityContext.RunAsUser, -1) == 0,
		"KON-49":           pod.Labels["k8s-app"] == "konnectivity-server",
		"no token":         !ptr.Deref(pod.Spec.AutomountServiceAccountToken, true),
	})
	wantPorts := []corev1.ContainerPort{
		{Name: "agentport", ContainerPort: 8132, HostPort: 8132, Protocol: "TCP"},
		{Name: "adminport", ContainerPort: 8133, HostPort: 8133, Protocol: "TCP"},
		{Name: "healthport", ContainerPort: 8134, HostPort: 8134, Protocol: "TCP"},
	}
	if diff := cmp.Diff(wantPorts, c.Ports); diff != "" {
		t.Errorf("KON-44 (-want +got):\n%s", diff)
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

// TestServerVolumes: KON-45, KON-46.
func TestServerVolumes(t *testing.T) {
	pod := staticServer(t, v1alpha1.New())
	const conf, dir, pkiDir = "/etc/kubernetes/konnectivity-server.conf", "/etc/kubernetes/konnectivity-server", "/etc/kubernetes/pki"
	wantMounts := []corev1.VolumeMount{
		{Name: "k8s-certs", MountPath: pkiDir, ReadOnly: true},
		{Name: "kubeconfig", MountPath: conf, ReadOnly: true},
		{Name: "konnectivity-uds", MountPath: dir},
	}
	if diff := cmp.Diff(wantMounts, pod.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("KON-45 (-want +got):\n%s", diff)
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
		t.Errorf("KON-46 (-want +got):\n%s", diff)
	}
}

// TestServerDaemonSet: KON-30, the form for control planes without static Pods.
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
