// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// garden plants canaries: secrets in places from which an archive might take them.
type garden struct {
	t       *testing.T
	ctx     context.Context
	cp      *daemontest.ControlPlane
	planted []string
}

// canary is a new one. It looks like a password.
func (g *garden) canary() string {
	c := fmt.Sprintf("c4n4ry%02dq7Zx9Lm2", len(g.planted))
	g.planted = append(g.planted, c)
	return c
}

// meta has a canary where kubectl stores whole objects.
func (g *garden) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"spec":{"env":[{"value":"` + g.canary() + `"}]}}`,
	}}
}

func must[T any](g *garden) func(T, error) T {
	return func(v T, err error) T {
		g.t.Helper()
		if err != nil {
			g.t.Fatal(err)
		}
		return v
	}
}

// agent is a Pod template that package observe takes for an agent, with canaries in its environment and arguments.
func (g *garden) agent() corev1.PodTemplateSpec {
	labels := map[string]string{"k8s-app": "konnectivity-agent"}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"note": g.canary()}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "agent", Image: "example/proxy-agent:v1", Command: []string{"/proxy-agent"},
			Args: []string{"--proxy-server-host=tunnel", "--proxy-password=" + g.canary(), "--upstream=http://u:" + g.canary() + "@proxy:3128", "--realm=" + g.canary(),
				"--site", g.canary(), "--blob", "-" + g.canary(), "--upstream-auth=user:" + g.canary(), g.canary(), "-c", "exec /x " + g.canary(), "--v=3", "=" + g.canary()},
			Env: []corev1.EnvVar{{Name: "DB_PASSWORD", Value: g.canary()}, {Name: "ANYTHING", Value: g.canary()}}}},
	}}
}

func (g *garden) plantSecrets() {
	core := g.cp.Client.CoreV1()
	for _, kind := range []corev1.SecretType{corev1.SecretTypeOpaque, corev1.SecretTypeBootstrapToken, "kubernetes.io/dockercfg-like"} {
		s := &corev1.Secret{ObjectMeta: g.meta("kube-system", "s"+fmt.Sprint(len(g.planted))), Type: kind, StringData: map[string]string{"password": g.canary()}}
		if kind == corev1.SecretTypeBootstrapToken {
			s.Type = "example.com/bootstrap"
		}
		must[*corev1.Secret](g)(core.Secrets("kube-system").Create(g.ctx, s, metav1.CreateOptions{}))
	}
	config := &corev1.ConfigMap{ObjectMeta: g.meta("kube-system", "other-scheduler"), Data: map[string]string{
		"config.yaml": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n# password " + g.canary() + "\n" + g.schedulers(),
		"password":    g.canary(),
	}}
	must[*corev1.ConfigMap](g)(core.ConfigMaps("kube-system").Create(g.ctx, config, metav1.CreateOptions{}))
}

// schedulers is the rest of a scheduler's configuration, with credentials of extenders and plugins.
func (g *garden) schedulers() string {
	key := g.key("Bag Attributes\n    localKeyID: 01\n")
	return "profiles:\n- schedulerName: other\n  pluginConfig:\n  - name: Prices\n    args: {realm: " + g.canary() + ", token: " + g.canary() + "}\n" +
		"extenders:\n- urlPrefix: https://u:" + g.canary() + "@extender.example:8080/" + g.canary() + "?k=" + g.canary() + "\n  filterVerb: filter?k=" + g.canary() +
		"\n  tlsConfig: {keyData: " + base64.StdEncoding.EncodeToString([]byte(key)) + ", keyFile: /a}\n"
}

// key is a private key whose lines are canaries, behind other text. In base64 each line has three forms, all of which are planted.
func (g *garden) key(before string) string {
	line := g.canary()
	for skip := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + line))
		g.planted = append(g.planted, encoded[4:20])
	}
	return before + "-----BEGIN PRIVATE KEY-----\n" + line + "\n-----END PRIVATE KEY-----\n"
}

// plantSidecar makes a Pod with two programs: kube-apiserver, and a server of the tunnel next to it.
func (g *garden) plantSidecar() {
	pod := &corev1.Pod{ObjectMeta: g.meta("kube-system", "kube-apiserver-cp1"), Spec: corev1.PodSpec{NodeName: "n1", AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{
		{Name: "kube-apiserver", Image: "example/kube-apiserver:v1", Command: []string{"kube-apiserver"},
			Args: []string{"--egress-selector-config-file=/e.yaml", "--oidc-anything=" + g.canary(), "--etcd-servers=https://e/" + g.canary()}},
		{Name: "tunnel", Image: "example/proxy-server:v1", Command: []string{"/proxy-server"}, Args: []string{"--uds-name=/u", "--realm", g.canary()}},
	}}}
	must[*corev1.Pod](g)(g.cp.Client.CoreV1().Pods("kube-system").Create(g.ctx, pod, metav1.CreateOptions{}))
}

func (g *garden) plantWorkloads() {
	// No controller creates it here, and Pods need it.
	must[*corev1.ServiceAccount](g)(g.cp.Client.CoreV1().ServiceAccounts("kube-system").Create(g.ctx, &corev1.ServiceAccount{ObjectMeta: g.meta("kube-system", "default")}, metav1.CreateOptions{}))
	template := g.agent()
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	apps, core := g.cp.Client.AppsV1(), g.cp.Client.CoreV1()
	must[*appsv1.DaemonSet](g)(apps.DaemonSets("kube-system").Create(g.ctx, &appsv1.DaemonSet{ObjectMeta: g.meta("kube-system", "konnectivity-agent"),
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{}))
	must[*appsv1.Deployment](g)(apps.Deployments("kube-system").Create(g.ctx, &appsv1.Deployment{ObjectMeta: g.meta("kube-system", "my-scheduler"),
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, metav1.CreateOptions{}))
	pod := &corev1.Pod{ObjectMeta: g.meta("kube-system", "konnectivity-agent-1"), Spec: template.Spec}
	pod.Labels, pod.Spec.AutomountServiceAccountToken, pod.Spec.NodeName = template.Labels, new(bool), "n1"
	pod = must[*corev1.Pod](g)(core.Pods("kube-system").Create(g.ctx, pod, metav1.CreateOptions{}))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: "pull https://robot:" + g.canary() + "@registry/x: denied"}}}}
	must[*corev1.Pod](g)(core.Pods("kube-system").UpdateStatus(g.ctx, pod, metav1.UpdateOptions{}))
	node := must[*corev1.Node](g)(core.Nodes().Create(g.ctx, &corev1.Node{ObjectMeta: g.meta("", "n1")}, metav1.CreateOptions{}))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "Authorization: Bearer " + g.canary()}}
	must[*corev1.Node](g)(core.Nodes().UpdateStatus(g.ctx, node, metav1.UpdateOptions{}))
	must[*corev1.Event](g)(core.Events("kube-system").Create(g.ctx, &corev1.Event{ObjectMeta: g.meta("kube-system", "e1"), Message: "mount failed: token=" + g.canary(),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "kube-system", Name: "konnectivity-agent-1"}}, metav1.CreateOptions{}))
}

func (g *garden) plantPolicies() {
	c := g.cp.Client
	must[*coordinationv1.Lease](g)(c.CoordinationV1().Leases("kube-system").Create(g.ctx, &coordinationv1.Lease{ObjectMeta: g.meta("kube-system", "my-scheduler")}, metav1.CreateOptions{}))
	must[*policyv1.PodDisruptionBudget](g)(c.PolicyV1().PodDisruptionBudgets("kube-system").Create(g.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: g.meta("kube-system", "p")}, metav1.CreateOptions{}))
	must[*networkingv1.NetworkPolicy](g)(c.NetworkingV1().NetworkPolicies("kube-system").Create(g.ctx, &networkingv1.NetworkPolicy{ObjectMeta: g.meta("kube-system", "p")}, metav1.CreateOptions{}))
	must[*flowcontrolv1.FlowSchema](g)(c.FlowcontrolV1().FlowSchemas().Create(g.ctx, &flowcontrolv1.FlowSchema{ObjectMeta: g.meta("", "p"), Spec: flowcontrolv1.FlowSchemaSpec{
		MatchingPrecedence: 5000, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "global-default"}}}, metav1.CreateOptions{}))
	fail, none := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	must[*admissionregistrationv1.ValidatingWebhookConfiguration](g)(c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(g.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: g.meta("", "hook"), Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a.b.c", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "kube-system", Name: "hook"}}}},
	}, metav1.CreateOptions{}))
	config, err := clientcmd.BuildConfigFromFlags("", g.cp.Kubeconfig)
	if err != nil {
		g.t.Fatal(err)
	}
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "tests.example.com", "annotations": map[string]any{"a": g.canary()}},
		"spec": map[string]any{"group": "example.com", "scope": "Cluster", "names": map[string]any{"kind": "Test", "plural": "tests"}, "versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "description": g.canary()}}}}}}}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	must[*unstructured.Unstructured](g)(dynamic.NewForConfigOrDie(config).Resource(gvr).Create(g.ctx, crd, metav1.CreateOptions{}))
}

// plantResources makes Fairlead's custom resources, a Pod of the operator and an event of a node.
func (g *garden) plantResources() {
	config, err := clientcmd.BuildConfigFromFlags("", g.cp.Kubeconfig)
	if err != nil {
		g.t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(config)
	files, err := filepath.Glob("../apis/fairlead/crds/*.yaml")
	if err != nil || len(files) < 3 {
		g.t.Fatal(files, err)
	}
	for _, file := range files {
		var crd unstructured.Unstructured
		data := must[[]byte](g)(os.ReadFile(file))
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			g.t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		must[*unstructured.Unstructured](g)(client.Resource(gvr).Create(g.ctx, &crd, metav1.CreateOptions{}))
	}
	beta := schema.GroupVersion{Group: "fairlead.dev", Version: "v1beta1"}
	bundle := &unstructured.Unstructured{Object: map[string]any{"apiVersion": beta.String(), "kind": "Bundle",
		"metadata": map[string]any{"name": "default", "annotations": map[string]any{"a": g.canary()}},
		"spec":     map[string]any{"scheduler": map[string]any{"name": "second", "extraArgs": []any{map[string]any{"name": "v", "value": g.canary()}}}}}}
	daemontest.Eventually(g.t, time.Minute, func() error {
		_, err := client.Resource(beta.WithResource("bundles")).Create(g.ctx, bundle, metav1.CreateOptions{})
		return err
	})
	core := g.cp.Client.CoreV1()
	operator := &corev1.Pod{ObjectMeta: g.meta("kube-system", "fairlead-operator-1"), Spec: corev1.PodSpec{NodeName: "n1", AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "operator", Image: "example/fairlead-operator:v1", Command: []string{"/fairlead-operator"}}}}}
	must[*corev1.Pod](g)(core.Pods("kube-system").Create(g.ctx, operator, metav1.CreateOptions{}))
	for kind, name := range map[string]string{"Node": "n1", "Pod": "private"} {
		must[*corev1.Event](g)(core.Events("default").Create(g.ctx, &corev1.Event{ObjectMeta: g.meta("default", strings.ToLower(kind)), Message: kind + " is not ready: password=" + g.canary(),
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: map[string]string{"Pod": "default"}[kind], Name: name}}, metav1.CreateOptions{}))
	}
}

// log is the end of a log with canaries in several lines.
func (g *garden) log() string {
	key := base64.StdEncoding.EncodeToString([]byte(g.key("Bag Attributes: of it\n")))
	for i := 64; i < len(key); i += 65 {
		key = key[:i] + "\n" + key[i:]
	}
	return "DB_PASSWORD=a b " + g.canary() + "\na:\n  password: |\n    x\n    " + g.canary() + "\nb:\n" + key
}

// local is a server that runs as a process: its arguments, log and metrics have canaries, too.
func (g *garden) local() *check.Env {
	log := filepath.Join(g.t.TempDir(), "server.log")
	key := "-----BEGIN PRIVATE KEY-----\n" + g.canary() + "\n-----END PRIVATE KEY-----\n"
	lines := []string{g.canary(), g.canary(), "-----END RSA PRIVATE KEY-----", "I0101 started", "Authorization: Bearer " + g.canary(), "Authorization: Token " + g.canary(),
		`{"msg":"{\"password\":\"` + g.canary() + `\"}"}`, `{"auths":{"r":{"auth":"` + g.canary() + `"}}}`, "DB_PASS=" + g.canary(), base64.StdEncoding.EncodeToString([]byte(g.key("\n"))), "Set-Cookie: id=" + g.canary(), "env DB_PASSWORD=" + g.canary(),
		"token eyJhbGciOiJSUzI1NiJ9.eyJ" + g.canary() + ".x", key, base64.StdEncoding.EncodeToString([]byte(key)), `{"client_secret":"` + g.canary() + `"}`, "I0101 ended"}
	if err := os.WriteFile(log, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		g.t.Fatal(err)
	}
	token := g.canary()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE konnectivity_network_proxy_agent_open_server_connections gauge\nkonnectivity_network_proxy_agent_open_server_connections{url=\"http://u:" + token + "@h\"} 2\n"))
	}))
	g.t.Cleanup(agent.Close)
	_, port, err := net.SplitHostPort(agent.Listener.Addr().String())
	if err != nil {
		g.t.Fatal(err)
	}
	return &check.Env{
		Programs: func(context.Context) ([]check.Program, error) {
			return []check.Program{{Role: check.RoleServer, Name: "process konnectivity-server", Args: []string{"--mode=grpc", "--api-token", token, "--auth-token=" + token, "--zone", g.canary()}, Ready: true, Local: true, LogFile: log},
				{Role: check.RoleAgent, Name: "process agent-0", Args: []string{"--health-server-host=127.0.0.1", "--health-server-port=" + port}, Ready: true, Local: true, LogFile: log}}, nil
		},
		ServerMetrics: func(context.Context) ([]byte, error) {
			return []byte("# TYPE konnectivity_network_proxy_server_ready_backend_connections gauge\nkonnectivity_network_proxy_server_ready_backend_connections{url=\"http://u:" + g.canary() + "@h\"} 1\n"), nil
		},
		ServerMetricsAside: true,
	}
}
