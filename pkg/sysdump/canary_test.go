// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/sysdump"
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
			Args: []string{"--proxy-server-host=tunnel", "--proxy-password=" + g.canary(), "--upstream=http://u:" + g.canary() + "@proxy:3128"},
			Env:  []corev1.EnvVar{{Name: "DB_PASSWORD", Value: g.canary()}, {Name: "ANYTHING", Value: g.canary()}}}},
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
		"config.yaml": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n# password " + g.canary() + "\n",
		"password":    g.canary(),
	}}
	must[*corev1.ConfigMap](g)(core.ConfigMaps("kube-system").Create(g.ctx, config, metav1.CreateOptions{}))
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

// local is a server that runs as a process: its arguments, log and metrics have canaries, too.
func (g *garden) local() *check.Env {
	log := filepath.Join(g.t.TempDir(), "server.log")
	key := "-----BEGIN PRIVATE KEY-----\n" + g.canary() + "\n-----END PRIVATE KEY-----\n"
	lines := []string{"I0101 started", "Authorization: Bearer " + g.canary(), "Set-Cookie: id=" + g.canary(), "env DB_PASSWORD=" + g.canary(),
		"token eyJhbGciOiJSUzI1NiJ9.eyJ" + g.canary() + ".x", key, base64.StdEncoding.EncodeToString([]byte(key)), `{"client_secret":"` + g.canary() + `"}`, "I0101 ended"}
	if err := os.WriteFile(log, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		g.t.Fatal(err)
	}
	token := g.canary()
	return &check.Env{
		Programs: func(context.Context) ([]check.Program, error) {
			return []check.Program{{Role: check.RoleServer, Name: "process konnectivity-server", Args: []string{"--mode=grpc", "--api-token", token, "--auth-token=" + token}, Ready: true, Local: true, LogFile: log}}, nil
		},
		ServerMetrics: func(context.Context) ([]byte, error) {
			return []byte("# TYPE konnectivity_network_proxy_server_ready_backend_connections gauge\nkonnectivity_network_proxy_server_ready_backend_connections{url=\"http://u:" + g.canary() + "@h\"} 1\n"), nil
		},
		ServerMetricsAside: true,
	}
}

// TestNoCanaryIsCollected proves that an archive of a real API server's cluster has what support needs, and none of the secrets that are
// planted in Secrets, ConfigMaps, annotations, environments, arguments, messages, logs and metrics; and that it says what is missing.
func TestNoCanaryIsCollected(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	g := &garden{t: t, ctx: t.Context(), cp: cp}
	g.plantSecrets()
	g.plantWorkloads()
	g.plantPolicies()
	env := g.local()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "test", Env: env, Limit: 5 * time.Second}, &out,
		sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	if len(g.planted) < 30 {
		t.Errorf("only %d canaries", len(g.planted))
	}
	for name, text := range files {
		for _, c := range g.planted {
			if strings.Contains(text, c) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(c))) {
				t.Errorf("%s has %s", name, c)
			}
		}
	}
	for name, want := range map[string]string{
		"objects/pods.json": "example/proxy-agent:v1", "objects/nodes.json": `"n1"`, "objects/daemonsets.json": "konnectivity-agent", "objects/events.json": "mount failed",
		"objects/customresourcedefinitions.json": "tests.example.com", "objects/validatingwebhookconfigurations.json": "a.b.c", "check.json": "FL-API-001",
		"status.json": `"cluster": "test"`, "programs.json": "--mode=grpc", "config/kube-system_other-scheduler.json": "KubeSchedulerConfiguration",
		"logs/konnectivity-server.log": "I0101 ended", "metrics/konnectivity-server.txt": "ready_backend_connections", "manifest.json": `"missing"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
		}
	}
	missing := ""
	for _, m := range manifest.Missing {
		missing += m.What + "\n"
	}
	if !strings.Contains(missing, "logs/kube-system_konnectivity-agent-1.log") {
		t.Errorf("the log of a Pod without a kubelet is not among what is missing:\n%s", missing)
	}
	testWithoutRights(t, config)
}

// testWithoutRights proves that a user who may read almost nothing gets an archive that says so: what is forbidden is unknown, and nothing fails
// because of that.
func testWithoutRights(t *testing.T, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "guest", Groups: []string{"system:authenticated"}}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "guest", Limit: 5 * time.Second}, &out,
		sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Counts map[string]int
		Checks []struct{ ID, Status, Reason string }
	}
	if err := json.Unmarshal([]byte(unpack(t, &out)["check.json"]), &report); err != nil {
		t.Fatal(err)
	}
	if report.Counts["failed"] > 0 || report.Counts["unknown"] < 10 {
		t.Errorf("got %v", report.Counts)
	}
	for _, c := range report.Checks {
		if c.ID == "FL-API-009" && c.Status != "warning" || c.ID == "FL-API-011" && (c.Status != "unknown" || !strings.Contains(c.Reason, "forbidden")) {
			t.Errorf("got %+v", c)
		}
	}
	reasons := fmt.Sprint(manifest.Missing)
	if !strings.Contains(reasons, "objects/nodes.json") || !strings.Contains(reasons, "forbidden") {
		t.Errorf("got %s", reasons)
	}
}

// unpack reads the files of an archive, without the name of its directory.
func unpack(t *testing.T, in io.Reader) map[string]string {
	t.Helper()
	gz, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(gz); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(path.Clean(h.Name), "/")
		files[name] = string(data)
	}
}

// TestWithoutAPIServer proves that an archive is written without an API server, too, has what this machine knows, and says why the rest is missing;
// and that the limit of size holds.
func TestWithoutAPIServer(t *testing.T) {
	ports := daemontest.Ports(t, 1)
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig("https://127.0.0.1:" + ports[0]), nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(log, bytes.Repeat([]byte("one line of a log\n"), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	env := &check.Env{Programs: func(context.Context) ([]check.Program, error) {
		return []check.Program{{Role: check.RoleServer, Name: "process konnectivity-server", Local: true, LogFile: log}, {Role: check.RoleAgent, Name: "process agent-0", Local: true, LogFile: log}}, nil
	}}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "down", Env: env}, &out, sysdump.Options{MaxSize: 60 << 10, LogSize: 30 << 10, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	total := 0
	for name, text := range files {
		if name != "manifest.json" {
			total += len(text)
		}
	}
	if total > 60<<10 {
		t.Errorf("%d bytes, more than the limit", total)
	}
	if text := files["logs/konnectivity-server.log"]; len(text) > 30<<10 || !strings.HasPrefix(text, "one line") || !strings.Contains(files["check.json"], "connection refused") {
		t.Errorf("log of %d bytes that begins with %.20q", len(text), text)
	}
	reasons, err := json.Marshal(manifest.Missing)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"objects/nodes.json", "the API server does not answer", "size limit"} {
		if !strings.Contains(string(reasons), want) {
			t.Errorf("no %q in %s", want, reasons)
		}
	}
}
