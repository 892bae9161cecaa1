// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestKubectlThroughGateway: the commands of docs/gateway.md lead kubectl through the gateway of
// the cluster's bundle, and with a token for another audience they do not. Only the gateway's
// address, its certificate and the API server's are those of this cluster: an embedded one has
// no network in which their names hold.
func TestKubectlThroughGateway(t *testing.T) {
	if !suite.Simulated() {
		t.Skip("the gateway of a kind cluster is reached from the network of its Pods")
	}
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(umask 077\nkubectl config view .*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/gateway.md has no commands for kubectl")
	}
	address := fmt.Sprintf("127.0.0.1:%d", portsOf(t)[v1alpha1.GatewayName])
	commands := string(script[1])
	for documented, here := range map[string]string{"fairlead-gateway.kube-system.svc:1080": address, "https://kubernetes.default.svc": suite.Config.Host} {
		if !strings.Contains(commands, documented) {
			t.Fatalf("the commands do not name %s:\n%s", documented, commands)
		}
		commands = strings.ReplaceAll(commands, documented, here)
	}
	through := func(ctx context.Context, t *testing.T, token string) (out string, err error) {
		t.Helper()
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(suite.StateDir(suite.Name), "pki/ca.crt"), filepath.Join(dir, "gateway-ca.crt")); err != nil {
			t.Fatal(err)
		}
		cmd, stdout, stderr := suite.Program(ctx, "/bin/sh", "-e", "-c", commands)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "TOKEN="+token, "KUBECONFIG="+suite.Kubeconfig(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		err = cmd.Run()
		if info, statErr := os.Stat(filepath.Join(dir, "through-gateway.yaml")); statErr != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the kubeconfig: %v, %v", info, statErr)
		}
		return stdout.String() + stderr.String(), err
	}
	run(t, "kubectl through the gateway", time.Minute,
		step{"as documented", func(ctx context.Context, t *testing.T) {
			out, err := through(ctx, t, tokenFor(ctx, t, v1alpha1.DefaultGatewayAudience))
			if err != nil || !strings.Contains(out, harness.ServerName) {
				t.Errorf("%v\n%s", err, out)
			}
			line := regexp.MustCompile(fmt.Sprintf("(?m)^.*Connection ended.* user=%q.* destination=%q.*$",
				"system:serviceaccount:"+harness.Namespace+":default", strings.TrimPrefix(suite.Config.Host, "https://")))
			err = harness.Wait(ctx, 20*time.Second, "the gateway's audit line", func(context.Context) error {
				log, err := os.ReadFile(filepath.Join(suite.StateDir(suite.Name), "logs", v1alpha1.GatewayName+".log"))
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
