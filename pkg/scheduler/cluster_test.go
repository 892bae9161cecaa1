package scheduler_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// patience is for a scheduler to lead and bind some hundred pods on a busy machine.
const patience = time.Minute

// allProfiles is a bundle with every built-in profile and every plugin.
func allProfiles() *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	on := true
	b.Scheduler.Plugins.TunnelReach.Enabled = &on
	b.Scheduler.BuiltInProfiles = v1alpha1.BuiltInProfiles{
		Standard: &v1alpha1.StandardProfile{},
		Binpack:  &v1alpha1.BinpackProfile{}, Spread: &v1alpha1.SpreadProfile{}, Batch: &v1alpha1.BatchProfile{},
	}
	return b.Defaulted()
}

// installed is the second scheduler as a bundle installs it: rendered objects, rendered configuration, and an identity
// that has the rendered rights and no others.
type installed struct {
	*daemontest.Process
	port string
}

// install applies the rendered ServiceAccount and RBAC objects and starts the scheduler as that ServiceAccount.
func install(t *testing.T, cp *daemontest.ControlPlane, b *v1alpha1.Bundle) installed {
	t.Helper()
	objects, err := bundlescheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o.GetObjectKind().GroupVersionKind().Kind {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			create(t, cp, o)
		}
	}
	kubeconfig := kubeconfigOf(t, cp, b.Namespace, b.Scheduler.Name)
	data, err := bundlescheduler.Configuration(b, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	port := daemontest.Ports(t, 1)[0]
	process := daemontest.Start(t, nil, binary(), "--config="+file, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--feature-gates=CoordinatedLeaderElection=false", "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	return installed{process, port}
}

func create(t *testing.T, cp *daemontest.ControlPlane, o component.Object) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	gvk := o.GetObjectKind().GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	resource := client.Resource(plural)
	var target dynamic.ResourceInterface = resource
	if o.GetNamespace() != "" {
		target = resource.Namespace(o.GetNamespace())
	}
	daemontest.Eventually(t, bound, func() error {
		_, err := target.Create(t.Context(), &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
		return err
	})
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount.
func kubeconfigOf(t *testing.T, cp *daemontest.ControlPlane, namespace, name string) string {
	t.Helper()
	request, err := cp.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = request.Status.Token
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// get asks the scheduler's own port, with the administrator's token.
func (i installed) get(t *testing.T, cp *daemontest.ControlPlane, path string) (int, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+i.port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func makeNodes(t *testing.T, client kubernetes.Interface, n int) {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for i := range n {
		name := fmt.Sprintf("node-%03d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		created, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Admission taints new nodes until a controller has seen them ready; there is none here.
		created.Spec.Taints = nil
		if _, err := client.CoreV1().Nodes().Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// makePods makes pods that name a profile and ask for CPUs.
func makePods(t *testing.T, client kubernetes.Interface, prefix, profile, cpu string, n int, change ...func(*corev1.Pod)) {
	t.Helper()
	token := false
	if _, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller makes it
		if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", prefix, i), Labels: map[string]string{"app": prefix}},
			Spec: corev1.PodSpec{SchedulerName: profile, AutomountServiceAccountToken: &token, Containers: []corev1.Container{{
				Name: "pause", Image: "pause",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
			}}},
		}
		for _, c := range change {
			c(pod)
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// waitBound returns the node of each pod of a prefix, once all have one.
func waitBound(t *testing.T, client kubernetes.Interface, prefix string, n int) map[string]string {
	t.Helper()
	nodes := map[string]string{}
	daemontest.Eventually(t, patience, func() error {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + prefix})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				nodes[p.Name] = p.Spec.NodeName
			}
		}
		if len(nodes) < n {
			return fmt.Errorf("%d of %d pods %s are bound", len(nodes), n, prefix)
		}
		return nil
	})
	return nodes
}

// TestBatchingIsLive: OpportunisticBatching gives hints in fairlead-batch, with all of Fairlead's plugins enabled, and
// gives none with the default plugins, which is why the profile exists.
func TestBatchingIsLive(t *testing.T) {
	const n = 60
	cp := daemontest.StartControlPlane(t, programs)
	makeNodes(t, cp.Client, n)
	b := allProfiles()
	makePods(t, cp.Client, "batch", v1alpha1.DefaultBatchProfile, "3", n)
	s := install(t, cp, b)
	nodes := waitBound(t, cp.Client, "batch", n)
	if used := sets.New(values(nodes)...); used.Len() != n {
		t.Errorf("%d nodes for %d pods of which one fits on a node", used.Len(), n)
	}
	used := s.metric(t, cp, "scheduler_batch_attempts_total", `profile="fairlead-batch"`, `result="hint_used"`)
	t.Logf("%v hints were used for %d pods", used, n)
	if used < n/2 {
		t.Errorf("only %v hints were used for %d equal pods", used, n)
	}

	if err := cp.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	makePods(t, cp.Client, "plain", "my-scheduler", "3", n)
	waitBound(t, cp.Client, "plain", n)
	if used := s.metric(t, cp, "scheduler_batch_attempts_total", `profile="my-scheduler"`, `result="hint_used"`); used > 0 {
		t.Errorf("%v hints with default plugins: the documentation of the profile is wrong", used)
	}
}

func values(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// metric sums a counter's samples that have all of the labels.
func (i installed) metric(t *testing.T, cp *daemontest.ControlPlane, name string, labels ...string) float64 {
	t.Helper()
	code, body := i.get(t, cp, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("metrics: %d %s", code, body)
	}
	var sum float64
lines:
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// auditEvent is what is read of an audit log.
type auditEvent struct {
	Verb           string
	User           struct{ Username string }
	RequestURI     string
	ObjectRef      struct{ APIGroup, Resource, Subresource string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// TestRenderedRights: the rights that a bundle renders are enough for all profiles and plugins together, and none of
// the plugins' own rules is there for nothing (SCHED-33, SCHED-50, SCHED-51).
func TestRenderedRights(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := daemontest.StartControlPlane(t, programs, "--audit-log-path="+audit, "--audit-policy-file="+policy)
	makeNodes(t, cp.Client, 4)
	b := allProfiles()
	s := install(t, cp, b)
	for _, profile := range bundlescheduler.ProfileNames(b) {
		makePods(t, cp.Client, profile, profile, "100m", 3)
		waitBound(t, cp.Client, profile, 3)
	}
	preempt(t, cp)
	daemontest.Eventually(t, patience, func() error {
		if code, body := s.get(t, cp, "/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, "sched-handler-sync ok") {
			return fmt.Errorf("informers are not synced: %d %s", code, body)
		}
		return nil
	})
	user := "system:serviceaccount:" + b.Namespace + ":" + b.Scheduler.Name
	used := sets.New[string]()
	daemontest.Eventually(t, patience, func() error {
		for _, e := range readAudit(t, audit, user) {
			if e.ResponseStatus.Code == http.StatusForbidden || e.ResponseStatus.Code == http.StatusUnauthorized {
				t.Fatalf("%s %s was refused: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
			}
			used.Insert(e.Verb + " " + e.ObjectRef.APIGroup + "/" + e.ObjectRef.Resource)
		}
		for _, rule := range bundlescheduler.PluginRules(b) {
			// Informers list by watching; they fall back to a list with API servers that cannot.
			if need := "watch " + rule.APIGroups[0] + "/" + rule.Resources[0]; !used.Has(need) {
				return fmt.Errorf("the right to %s was not used: is the rule needed?", need)
			}
		}
		return nil
	})
	for _, need := range []string{"create /pods", "patch /pods", "create events.k8s.io/events", "update coordination.k8s.io/leases", "list /pods"} {
		if !used.Has(need) {
			t.Errorf("the scheduler did not %s: the test tests too little; it did %v", need, sets.List(used))
		}
	}
}

// preempt makes a profile evict its own pod, which takes further rights.
func preempt(t *testing.T, cp *daemontest.ControlPlane) {
	t.Helper()
	makePods(t, cp.Client, "fill", v1alpha1.DefaultBinpackProfile, "3500m", 4)
	waitBound(t, cp.Client, "fill", 3)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := cp.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makePods(t, cp.Client, "urgent", v1alpha1.DefaultBinpackProfile, "3500m", 1, func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
	daemontest.Eventually(t, patience, func() error {
		pod, err := cp.Client.CoreV1().Pods("default").Get(t.Context(), "urgent-000", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.NominatedNodeName == "" && pod.Spec.NodeName == "" {
			return fmt.Errorf("no node was nominated: %v", pod.Status.Conditions)
		}
		return nil
	})
}

// readAudit returns a user's requests that are answered. The last line may still be being written.
func readAudit(t *testing.T, path, user string) []auditEvent {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []auditEvent
	for line := range bytes.Lines(data) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err == nil && e.User.Username == user {
			events = append(events, e)
		}
	}
	return events
}
