package konnectivity_test

import (
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func objects(t *testing.T, b *v1alpha1.Bundle) []component.Object {
	t.Helper()
	out, err := konnectivity.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// all returns the objects of one type.
func all[T component.Object](objects []component.Object) []T {
	var out []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

// rows reports the rows of the requirements that do not hold.
func rows(t *testing.T, got any, checks map[string]bool) {
	t.Helper()
	failed := false
	for row, ok := range checks {
		if !ok {
			failed = true
			t.Errorf("%s does not hold", row)
		}
	}
	if failed {
		t.Logf("%+v", got)
	}
}

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

// TestRBAC: KON-80 to KON-82.
func TestRBAC(t *testing.T) {
	got := objects(t, v1alpha1.New())
	bindings := all[*rbacv1.ClusterRoleBinding](got)
	accounts := all[*corev1.ServiceAccount](got)
	if len(bindings) != 1 || len(accounts) != 1 || len(all[*rbacv1.Role](got)) > 0 {
		t.Fatalf("%d bindings, %d accounts", len(bindings), len(accounts))
	}
	labels := map[string]string{"kubernetes.io/cluster-service": "true", "addonmanager.kubernetes.io/mode": "Reconcile"}
	b := bindings[0]
	rows(t, got, map[string]bool{
		"KON-80": b.Name == "system:konnectivity-server" && maps.Equal(b.Labels, labels) &&
			b.RoleRef == (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:auth-delegator"}) &&
			cmp.Equal(b.Subjects, []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:konnectivity-server"}}),
		"KON-81": accounts[0].Name == "konnectivity-agent" && accounts[0].Namespace == "kube-system" && maps.Equal(accounts[0].Labels, labels),
	})
}

// TestManyServers: KON-50, KON-77, by number and by Leases.
func TestManyServers(t *testing.T) {
	args := func(c component.Component) string { return strings.Join(component.Args(c.Flags), " ") }
	one := v1alpha1.New()
	three := v1alpha1.New()
	three.Konnectivity.Server.Count = ptr.To[int32](3)
	counted := v1alpha1.New()
	counted.Konnectivity.LeaseCounting = ptr.To(true)
	for name, tc := range map[string]struct {
		b             *v1alpha1.Bundle
		server, agent string
		roles         int
	}{
		"one":   {one, "--server-count=1", "", 0},
		"three": {three, "--server-count=3", "--sync-forever=true", 0},
		"Leases": {counted, "--enable-lease-controller=true --lease-namespace=kube-system --lease-label=k8s-app=konnectivity-server",
			"--count-server-leases=true --lease-namespace=kube-system --lease-label=k8s-app=konnectivity-server --sync-forever=true", 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := args(konnectivity.Server(tc.b)); !strings.HasSuffix(got, tc.server) || strings.Contains(got, "server-id") {
				t.Errorf("server: %s", got)
			}
			got := args(konnectivity.Agent(tc.b))
			if !strings.HasSuffix(got, tc.agent) || (tc.agent == "" && strings.Contains(got, "sync-forever")) {
				t.Errorf("agent: %s", got)
			}
			if roles := all[*rbacv1.Role](objects(t, tc.b)); len(roles) != tc.roles {
				t.Errorf("%d roles", len(roles))
			}
		})
	}
	verbs := map[string][]string{}
	for _, r := range all[*rbacv1.Role](objects(t, counted)) {
		verbs[r.Name] = r.Rules[0].Verbs
	}
	if got := verbs["konnectivity-agent-leases"]; !slices.Contains(got, "list") || !slices.Contains(got, "watch") || slices.Contains(got, "update") {
		t.Errorf("agent may %v", got)
	}
	for _, verb := range []string{"create", "get", "list", "watch", "update", "delete"} {
		if !slices.Contains(verbs["konnectivity-server-leases"], verb) {
			t.Errorf("server may not %s", verb)
		}
	}
}

// TestService: the default host is a headless Service that lists servers which
// are not ready, since a server is ready by its first agent only (KON-41).
func TestService(t *testing.T) {
	b := v1alpha1.New()
	services := all[*corev1.Service](objects(t, b))
	if len(services) != 1 {
		t.Fatalf("%d Services", len(services))
	}
	s := services[0]
	rows(t, s, map[string]bool{
		"name":      s.Name+"."+s.Namespace+".svc" == b.Konnectivity.ServerHost,
		"headless":  s.Spec.ClusterIP == corev1.ClusterIPNone,
		"not ready": s.Spec.PublishNotReadyAddresses,
		"selects":   maps.Equal(s.Spec.Selector, staticServer(t, b).Labels),
		"port":      s.Spec.Ports[0].Port == b.Konnectivity.AgentPort,
	})
	b.Konnectivity.ServerHost = "192.0.2.1"
	if got := all[*corev1.Service](objects(t, b)); len(got) > 0 {
		t.Errorf("a Service beside serverHost 192.0.2.1: %v", got)
	}
}

// TestServerKubeconfig: KON-20, KON-21.
func TestServerKubeconfig(t *testing.T) {
	b := v1alpha1.New()
	now := time.Now()
	ca, err := pki.NewCA(pki.FromBundle(b), "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := konnectivity.ServerKubeconfig(b, ca, "https://192.0.2.1:6443", now)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	user, cluster := config.AuthInfos["system:konnectivity-server"], config.Clusters["kubernetes"]
	if user == nil || cluster == nil || config.CurrentContext != "system:konnectivity-server@kubernetes" {
		t.Fatalf("kubeconfig %s", data)
	}
	if cluster.Server != "https://192.0.2.1:6443" || string(cluster.CertificateAuthorityData) != string(ca.CertPEM()) {
		t.Errorf("cluster %+v", cluster)
	}
	cert, err := pki.ParseCert(user.ClientCertificateData)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if got := cert.NotAfter.Sub(now).Round(time.Hour); got != 9000*time.Hour {
		t.Errorf("valid for %v, want 375 days", got)
	}
	if cert.Subject.CommonName != "system:konnectivity-server" || len(cert.Subject.Organization) > 0 {
		t.Errorf("subject %v", cert.Subject)
	}
}

// TestEveryOwnFlagIsReserved: extraArgs must not be able to set what we set, in
// any form of the bundle.
func TestEveryOwnFlagIsReserved(t *testing.T) {
	many := v1alpha1.New()
	many.Konnectivity.LeaseCounting = ptr.To(true)
	many.Konnectivity.Agent.Identifiers = "default-route=true"
	tcp := v1alpha1.New()
	tcp.Konnectivity.Transport = v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131"}}
	for _, base := range []*v1alpha1.Bundle{v1alpha1.New(), many, tcp} {
		for _, f := range konnectivity.OwnServerFlags(base) {
			b := base.DeepCopy()
			b.Konnectivity.Server.ExtraArgs = []v1alpha1.Argument{{Name: f.Name, Value: "x"}}
			if errs := konnectivity.Validate(b); len(errs) == 0 {
				t.Errorf("server.extraArgs may set %s", f.Name)
			}
		}
		for _, f := range konnectivity.OwnAgentFlags(base) {
			b := base.DeepCopy()
			b.Konnectivity.Agent.ExtraArgs = []v1alpha1.Argument{{Name: f.Name, Value: "x"}}
			if errs := konnectivity.Validate(b); len(errs) == 0 {
				t.Errorf("agent.extraArgs may set %s", f.Name)
			}
		}
	}
}
