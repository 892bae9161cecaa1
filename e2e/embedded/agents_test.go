// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// supervisor controls the programs of a cluster.
func (h *home) supervisor(name string) *process.Client {
	return process.NewClient(filepath.Join(h.StateDir(name), "run/supervisor.sock"))
}

// programArgs reads the arguments of a program of the cluster.
func (h *home) programArgs(name, program string) []string {
	h.t.Helper()
	var todo struct{ Programs []process.Spec }
	data, err := os.ReadFile(filepath.Join(h.StateDir(name), "programs.json"))
	if err == nil {
		err = json.Unmarshal(data, &todo)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	i := slices.IndexFunc(todo.Programs, func(s process.Spec) bool { return s.Name == program })
	if i < 0 {
		h.t.Fatalf("no program %s", program)
	}
	return todo.Programs[i].Args
}

// The server accepts an agent with a token of the agents' ServiceAccount and
// audience, and with no other token.
func checkAgentTokens(t *testing.T, h *home) {
	client := h.client("dev")
	for _, tc := range []struct {
		name, account, audience, node string
		admitted                      bool
	}{
		{"right", "konnectivity-agent", "system:konnectivity-server", "node-1", true},
		{"bound to no node", "konnectivity-agent", "system:konnectivity-server", "", false},
		{"other account", "default", "system:konnectivity-server", "node-1", false},
		{"other audience", "konnectivity-agent", "another-audience", "node-1", false},
		{"API server's audience", "konnectivity-agent", "", "node-1", false},
		{"garbage", "", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			token := []byte("not.a.token")
			if tc.account != "" {
				token = requestToken(t, client, tc.account, tc.audience, tc.node)
			}
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, token, 0o600); err != nil {
				t.Fatal(err)
			}
			ready, refused := startAgent(t, h, file)
			testutil.Eventually(t, time.Minute, func() error {
				if !ready() && !refused() {
					return errors.New("the agent is neither admitted nor refused")
				}
				return nil
			})
			if got := ready(); got != tc.admitted || refused() == tc.admitted {
				t.Errorf("the agent is admitted: %v, want %v; refused: %v", got, tc.admitted, refused())
			}
		})
	}
}

// requestToken returns a token that is bound to the node, unless the name is empty.
func requestToken(t *testing.T, client kubernetes.Interface, account, audience, node string) []byte {
	t.Helper()
	namespace := "kube-system"
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if node != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node}
	}
	reply, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return []byte(reply.Status.Token)
}

// startAgent runs one more agent with another token and returns how to ask whether it is ready, and whether a server has refused it.
func startAgent(t *testing.T, h *home, tokenFile string) (ready, refused func() bool) {
	t.Helper()
	ports := daemontest.Ports(t, 2)
	args := append(slices.Clone(h.programArgs("dev", "konnectivity-agent-0")),
		"--agent-id=stranger", "--service-account-token-path="+tokenFile,
		"--health-server-port="+ports[0], "--admin-server-port="+ports[1])
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(h.Bin, "konnectivity-agent"), args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	said := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Log(said())
		}
	})
	url := "http://127.0.0.1:" + ports[0] + "/readyz"
	ready = func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	return ready, func() bool { return strings.Contains(said(), "Cannot connect to a server") }
}

// The second scheduler has the permissions that it needs and no more. The role
// system:kube-scheduler is as the API server created it. The scheduler's
// account may do what a scheduler does, but may not read Secrets or access the
// default scheduler's Lease in other ways.
func checkRBAC(t *testing.T, h *home) {
	client := h.client("dev")
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), "system:kube-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(role.Rules) < 20 {
		t.Errorf("system:kube-scheduler has only %d rules: it was overwritten", len(role.Rules))
	}
	for _, f := range role.ManagedFields {
		if f.Manager == "fairlead" {
			t.Error("system:kube-scheduler was edited")
		}
	}
	token := requestToken(t, client, "my-scheduler", "", "")
	config := h.restConfig("dev")
	config.BearerToken, config.CertData, config.KeyData = string(token), nil, nil
	mine, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.CoordinationV1().Leases("kube-system").Get(t.Context(), "my-scheduler", metav1.GetOptions{}); err != nil {
		t.Errorf("its own Lease: %v", err)
	}
	if _, err := mine.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets: %v, want forbidden", err)
	}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if _, err := mine.CoreV1().ConfigMaps("kube-system").Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating a ConfigMap: %v, want forbidden", err)
	}
	log, err := os.ReadFile(filepath.Join(h.StateDir("dev"), "logs/second-scheduler-0.log"))
	if err != nil || len(log) == 0 {
		t.Errorf("the second scheduler's log: %d bytes, %v", len(log), err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("the second scheduler lacks a right: %s", line)
		}
	}
}

// Only the owner and the group may connect to the tunnel's socket.
func checkSocket(t *testing.T, h *home) {
	info, err := os.Stat(filepath.Join(h.StateDir("dev"), "run/konnectivity-server.socket"))
	if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("socket: %v, %v; want nothing for others", info, err)
	}
}

// Each of the two agents counts as running on one of the three nodes; the
// condition TunnelReady, which the plugin TunnelReach reads, follows the
// processes.
func checkTunnelConditions(t *testing.T, h *home) {
	client := h.client("dev")
	want := func(node string, status corev1.ConditionStatus) {
		t.Helper()
		testutil.Eventually(t, time.Minute, func() error {
			n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "TunnelReady" && c.Status == status }) {
				return fmt.Errorf("%s: TunnelReady is not %s: %v", node, status, n.Status.Conditions)
			}
			return nil
		})
	}
	want("node-1", corev1.ConditionTrue)
	want("node-2", corev1.ConditionTrue)
	want("node-3", corev1.ConditionFalse)
	if err := h.supervisor("dev").Stop(t.Context(), "konnectivity-agent-1"); err != nil {
		t.Fatal(err)
	}
	want("node-2", corev1.ConditionFalse)
	want("node-1", corev1.ConditionTrue)
	if err := h.supervisor("dev").Start(t.Context(), "konnectivity-agent-1"); err != nil {
		t.Fatal(err)
	}
	want("node-2", corev1.ConditionTrue)
}
