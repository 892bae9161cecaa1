// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// gatewayAddress is that of the commands in docs/gateway.md.
const gatewayAddress = "fairlead-gateway.kube-system.svc:1080"

// TestKubectlThroughGateway: the commands of docs/gateway.md lead kubectl through the gateway of
// the cluster's bundle to Service kubernetes, and with a token for another audience they do not. On kind a Pod runs
// them as they are. An embedded cluster has no network in which the name of the gateway holds: there its
// address is another one.
// It observes SOCKS-07 of docs/requirements.md.
func TestKubectlThroughGateway(t *testing.T) {
	testutil.Full(t, "the cluster of `make test` has no gateway")
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(umask 077\nkubectl config view .*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/gateway.md has no commands for kubectl")
	}
	commands := string(script[1])
	for _, documented := range []string{gatewayAddress, "--server https://kubernetes.default.svc "} {
		if !strings.Contains(commands, documented) {
			t.Fatalf("the commands do not name %s:\n%s", documented, commands)
		}
	}
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	through, audited := kubectlHere(kubectl, commands), gatewayLogHere
	if !suite.Simulated() {
		through, audited = kubectlInPod(kubectl, commands), gatewayLogInPods
	}
	run(t, "kubectl through the gateway", 3*time.Minute,
		step{"as documented", func(ctx context.Context, t *testing.T) {
			out, err := through(ctx, t, tokenFor(ctx, t, v1alpha1.DefaultGatewayAudience))
			if err != nil || !strings.Contains(out, harness.ServerName) {
				t.Errorf("%v\n%s", err, out)
			}
			line := regexp.MustCompile(fmt.Sprintf("(?m)^.*Connection ended.* user=%q.* destination=%q.*$",
				"system:serviceaccount:"+harness.Namespace+":default", "kubernetes.default.svc:443"))
			err = harness.Wait(ctx, 20*time.Second, "the gateway's audit line", func(ctx context.Context) error {
				log, err := audited(ctx)
				if err == nil && !line.Match(log) {
					err = fmt.Errorf("no line matches %s in\n%s", line, log)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}},
		step{"with a token for the API server", func(ctx context.Context, t *testing.T) {
			if out, err := through(ctx, t, tokenFor(ctx, t)); err == nil || !strings.Contains(out, "Proxy Authentication Required") {
				t.Errorf("%v, want the gateway's refusal\n%s", err, out)
			}
		}},
	)
}

// documented runs the commands of the page with a user's token.
type documented func(ctx context.Context, t *testing.T, token string) (out string, err error)

// kubectlHere runs them on this machine.
func kubectlHere(kubectl, commands string) documented {
	return func(ctx context.Context, t *testing.T, token string) (out string, err error) {
		t.Helper()
		here := strings.ReplaceAll(commands, gatewayAddress, fmt.Sprintf("127.0.0.1:%d", portsOf(t)[v1alpha1.GatewayName]))
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(suite.StateDir(suite.Name), "pki/ca.crt"), filepath.Join(dir, "gateway-ca.crt")); err != nil {
			t.Fatal(err)
		}
		cmd, stdout, stderr := suite.Program(ctx, "/bin/sh", "-e", "-c", here)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "TOKEN="+token, "KUBECONFIG="+suite.Kubeconfig(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		err = cmd.Run()
		if info, statErr := os.Stat(filepath.Join(dir, "through-gateway.yaml")); statErr != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the kubeconfig: %v, %v", info, statErr)
		}
		return stdout.String() + stderr.String(), err
	}
}

func gatewayLogHere(context.Context) ([]byte, error) {
	return os.ReadFile(filepath.Join(suite.StateDir(suite.Name), "logs", v1alpha1.GatewayName+".log"))
}

// kubectlInPod runs them in a Pod of the cluster's network, with the user's kubeconfig of this machine.
func kubectlInPod(kubectl, commands string) documented {
	const name, image = "kubectl-through-gateway", "fairlead.test/kubectl:e2e"
	return func(ctx context.Context, t *testing.T, token string) (out string, err error) {
		t.Helper()
		busybox := filepath.Join(t.TempDir(), "busybox")
		var program bytes.Buffer
		if err := suite.Nodes.ControlPlanes[0].CommandContext(ctx, "sh", "-c", "cat $(command -v busybox)").SetStdout(&program).Run(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(busybox, program.Bytes(), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		if err := suite.LoadTool(ctx, harness.ToolImage{Name: image, Busybox: busybox, Files: map[string]string{"/bin/kubectl": kubectl}}); err != nil {
			t.Fatal(err)
		}
		pod := suite.NewPod(name)
		container := &pod.Spec.Containers[0]
		container.Image, container.Command = image, []string{"/bin/sleep", "3600"}
		atEnd(ctx, t, func(ctx context.Context) { _ = suite.DeletePod(ctx, name) })
		if err := suite.StartPod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		kubeconfig, err := os.ReadFile(suite.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(gatewayCA(ctx, t))
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string][]byte{"/tmp/kubeconfig": kubeconfig, "/tmp/gateway-ca.crt": ca, "/tmp/token": []byte(token)} {
			// It does not wait for the end of its input, and fails if that was not all.
			write := fmt.Sprintf("umask 077; head -c %d > %s; [ $(wc -c < %[2]s) = %[1]d ]", len(content), file)
			err := harness.Wait(ctx, 20*time.Second, file, func(ctx context.Context) error {
				err := suite.Exec(ctx, name, []string{"/bin/sh", "-c", write}, harness.Streams{Stdin: bytes.NewReader(content)})
				if err != nil {
					t.Logf("write %s: %v", file, err)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		const before = "cd /tmp; export HOME=/tmp PATH=/bin KUBECONFIG=/tmp/kubeconfig TOKEN=\"$(cat token)\"\n"
		var said lockedBuffer
		err = suite.Exec(ctx, name, []string{"/bin/sh", "-e", "-c", before + commands}, harness.Streams{Stdout: &said, Stderr: &said})
		return string(said.Bytes()), err
	}
}

// gatewayLogInPods returns the logs of all replicas.
func gatewayLogInPods(ctx context.Context) (log []byte, err error) {
	pods := suite.Client.CoreV1().Pods(metav1.NamespaceSystem)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + v1alpha1.GatewayName})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		one, err := pods.GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		log = append(log, one...)
	}
	return log, nil
}
