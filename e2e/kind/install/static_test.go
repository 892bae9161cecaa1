// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// docBlock returns the first code block of a language after a heading of a page in docs/.
func docBlock(t *testing.T, page, heading, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, found := strings.Cut(after, "\n```"+language+"\n")
	block, _, ended := strings.Cut(block, "\n```\n")
	if !ok || !found || !ended {
		t.Fatalf("docs/%s has no %s block after %q", page, language, heading)
	}
	return block
}

// onNode runs the commands of a page as root on the control plane node, in a directory with the bundle.
func onNode(ctx context.Context, t *testing.T, bundle, commands string) {
	t.Helper()
	address, err := harness.Address(node())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(commands, "10.0.0.1") != 1 {
		t.Fatalf("the page's commands name the example address not once:\n%s", commands)
	}
	commands = strings.ReplaceAll(strings.ReplaceAll(commands, "10.0.0.1", address), "sudo ", "")
	script := "set -eu; export KUBECONFIG=/etc/kubernetes/admin.conf; rm -rf /root/static; mkdir -p /root/static; cd /root/static; cat >bundle.yaml\n" + commands
	var out strings.Builder
	err = node().CommandContext(ctx, "sh", "-c", script).SetStdin(strings.NewReader(bundle)).SetStdout(&out).SetStderr(&out).Run()
	t.Logf("%s\n%s", commands, out.String())
	if err != nil {
		t.Fatal(err)
	}
}

// staticPods runs the second scheduler and the gateway from manifests on the node, by the commands of docs/control-plane.md and
// docs/gateway.md, and then goes back to the default bundle.
func staticPods(ctx context.Context, t *testing.T) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		removeStatic(ctx, t)
	})
	file := bundletest.File("scheduler: {form: StaticPod}\ngateway: {enabled: true, form: StaticPod, rules: {allow: [{name: services, kinds: [Service]}]}}")
	onNode(ctx, t, file, docBlock(t, "control-plane.md", "### The second scheduler", "sh"))
	onNode(ctx, t, file, docBlock(t, "gateway.md", "## Next to a Konnectivity server", "sh"))
	if _, err := suite.Client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment of the scheduler: %v, want that it is gone", err)
	}
	for _, name := range []string{"my-scheduler", "fairlead-gateway"} {
		if err := waitReady(ctx, name+"-"+node().String(), "", true); err != nil {
			t.Fatal(err)
		}
	}
	err := harness.Wait(ctx, time.Minute, "the static Pod to lead", func(ctx context.Context) error {
		lease, err := suite.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); !strings.HasPrefix(holder, "my-scheduler-"+node().String()+"_") {
			return fmt.Errorf("Lease my-scheduler is held by %q", holder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	placed(ctx, t, "my-scheduler")
	throughGateway(ctx, t)
	verifyStatic(ctx, t, file)
}

// verifyStatic checks the static gateway by "fairlead verify", which trusts the cluster's CA then, and wants that it carries a connection:
// the check skips that part where rules of the gateway do not allow it.
func verifyStatic(ctx context.Context, t *testing.T, bundle string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		t.Fatal(err)
	}
	out := here(ctx, t, "verify", "-f", file, "--only", "^gateway-access$", "--image", nodeimage.PodImage, "-o", "json")
	wantTexts(t, out, `"gateway-access"`, `"carried"`)
}

// throughGateway lets one account reach the test server through the static gateway, and no other.
func throughGateway(ctx context.Context, t *testing.T) {
	t.Helper()
	const allowed, other = "gateway-allowed", "gateway-other"
	name := metav1.ObjectMeta{Name: allowed, Namespace: harness.Namespace}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"services/proxy"}, ResourceNames: []string{harness.ServerName}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: allowed}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: allowed, Namespace: harness.Namespace}}}
	core, rbac := suite.Client.CoreV1(), suite.Client.RbacV1()
	_, err1 := rbac.Roles(harness.Namespace).Create(ctx, role, metav1.CreateOptions{})
	_, err2 := rbac.RoleBindings(harness.Namespace).Create(ctx, binding, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, err := range []error{
			rbac.RoleBindings(harness.Namespace).Delete(ctx, allowed, metav1.DeleteOptions{}), rbac.Roles(harness.Namespace).Delete(ctx, allowed, metav1.DeleteOptions{}),
			core.ServiceAccounts(harness.Namespace).Delete(ctx, allowed, metav1.DeleteOptions{}), core.ServiceAccounts(harness.Namespace).Delete(ctx, other, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	}()
	for account, want := range map[string]string{allowed: "200 200", other: "403 000"} {
		if _, err := core.ServiceAccounts(harness.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: harness.Namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := core.ServiceAccounts(harness.Namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"fairlead-gateway"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const curl = `curl -sS --max-time 20 --proxytunnel --proxy-cacert /etc/kubernetes/pki/ca.crt -x https://localhost:1080 -U "token:$(cat)" -o /dev/null -w '%{http_connect} %{http_code}' `
		var out strings.Builder
		_ = node().CommandContext(ctx, "sh", "-c", curl+"http://"+harness.ServerName+"."+harness.Namespace+"/healthz 2>/dev/null").SetStdin(strings.NewReader(token.Status.Token)).SetStdout(&out).Run()
		if out.String() != want {
			t.Errorf("%s: the gateway and the server answer %q, want %q", account, out.String(), want)
		}
		kubectlThroughGateway(ctx, t, account, token.Status.Token)
	}
}

// kubectlThroughGateway runs the commands of docs/gateway.md for kubectl on the node. The gateway is at another address
// there, and its certificate is of the cluster's CA. Both accounts reach Service kubernetes, for which they need no right.
func kubectlThroughGateway(ctx context.Context, t *testing.T, account, token string) {
	t.Helper()
	const documented = "fairlead-gateway.kube-system.svc:1080"
	commands := docBlock(t, "gateway.md", "kubectl reaches the API server through the gateway with a kubeconfig that trusts both certificates. Your credentials for the API server stay in it,", "sh")
	if strings.Count(commands, documented) != 1 || !strings.Contains(commands, "--server https://kubernetes.default.svc ") {
		t.Fatalf("the page's commands do not name the gateway and the API server:\n%s", commands)
	}
	script := `set -eu; export KUBECONFIG=/etc/kubernetes/admin.conf TOKEN="$(cat)"; rm -rf /root/kubectl; mkdir /root/kubectl; cd /root/kubectl; cp /etc/kubernetes/pki/ca.crt gateway-ca.crt
` + strings.Replace(commands, documented, "localhost:1080", 1)
	var out strings.Builder
	err := node().CommandContext(ctx, "sh", "-c", script).SetStdin(strings.NewReader(token)).SetStdout(&out).SetStderr(&out).Run()
	if err != nil || !strings.Contains(out.String(), harness.ServerName) {
		t.Errorf("%s: kubectl through the static gateway: %v\n%s", account, err, out.String())
	}
}

// removeStatic takes the manifests and their files away, and installs the default bundle again.
func removeStatic(ctx context.Context, t *testing.T) {
	t.Helper()
	const files = "cd /etc/kubernetes && rm -rf manifests/my-scheduler.yaml manifests/fairlead-gateway.yaml my-scheduler my-scheduler.conf fairlead-gateway fairlead-gateway.conf pki/fairlead-gateway.* /root/static /root/kubectl"
	if out, err := harness.Run(ctx, node(), "sh", "-c", files); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{"my-scheduler", "fairlead-gateway"} {
		err := harness.Wait(ctx, time.Minute, name+" to be gone", func(ctx context.Context) error {
			_, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+node().String(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is still there"))
		})
		if err != nil {
			t.Error(err)
		}
	}
	here(ctx, t, "install")
}

// waitReady waits until a Pod of the node is ready, and its command has an argument or has it not.
func waitReady(ctx context.Context, pod, argument string, want bool) error {
	return harness.Wait(ctx, 2*time.Minute, "Pod "+pod+" to be ready", func(ctx context.Context) error {
		got, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if command := strings.Join(got.Spec.Containers[0].Command, " "); strings.Contains(command, argument) != want {
			return fmt.Errorf("it is the Pod from before: %s", command)
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it is %s: %+v", got.Status.Phase, got.Status.ContainerStatuses)
	})
}

// placed checks that a scheduler binds a Pod, which then runs.
func placed(ctx context.Context, t *testing.T, scheduler string) {
	t.Helper()
	pod := suite.NewPod("of-"+scheduler, "sleep")
	pod.Spec.SchedulerName, pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = scheduler, nodeimage.PodImage, nil, nil
	if err := suite.StartPod(ctx, pod); err != nil {
		t.Fatal(err)
	}
	events, err := suite.Client.CoreV1().Events(harness.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Scheduled,involvedObject.name=" + pod.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 1 || events.Items[0].ReportingController != scheduler {
		t.Errorf("want one event Scheduled of %s, got %+v", scheduler, events.Items)
	}
	if err := suite.DeletePod(ctx, pod.Name); err != nil {
		t.Error(err)
	}
}

// profiles are what an administrator gives kube-scheduler.
const profiles = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`

// defaultScheduler gives kube-scheduler a second profile by the part of kubeadm's configuration in docs/control-plane.md.
func defaultScheduler(ctx context.Context, t *testing.T) {
	stored, err := suite.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var config, part map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(stored.Data["ClusterConfiguration"]), &config), yaml.Unmarshal([]byte(docBlock(t, "control-plane.md", "### The default scheduler", "yaml")), &part)); err != nil {
		t.Fatal(err)
	}
	config["scheduler"] = part["scheduler"]
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	const dir, configFlag = "cd /etc/kubernetes && ", "--config=/etc/kubernetes/scheduler-config.yaml"
	run := func(script, stdin string) {
		t.Helper()
		var out strings.Builder
		if err := node().CommandContext(ctx, "sh", "-c", dir+script).SetStdin(strings.NewReader(stdin)).SetStdout(&out).SetStderr(&out).Run(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out.String())
		}
	}
	name := "kube-scheduler-" + node().String()
	run("cp -p manifests/kube-scheduler.yaml /root/kube-scheduler.yaml", "")
	defer func() {
		run("cp -p /root/kube-scheduler.yaml manifests/kube-scheduler.yaml && rm -f scheduler-config.yaml", "")
		if err := waitReady(ctx, name, configFlag, false); err != nil {
			t.Error(err)
		}
	}()
	run("cat > scheduler-config.yaml", profiles)
	run("cat > /root/kubeadm.yaml && kubeadm init phase control-plane scheduler --config /root/kubeadm.yaml", string(data))
	if err := waitReady(ctx, name, configFlag, true); err != nil {
		t.Fatal(err)
	}
	placed(ctx, t, "packed")
	placed(ctx, t, "default-scheduler")
}
