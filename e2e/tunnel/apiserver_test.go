// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const audience = "system:konnectivity-server"

// tokenFile writes a token of a ServiceAccount in kube-system for an audience to a
// file.
func tokenFile(t *testing.T, cp *daemontest.ControlPlane, account, audience string) string {
	t.Helper()
	return boundTokenFile(t, cp, account, audience, nil)
}

// boundTokenFile is like tokenFile with a token that is bound to an object, if one is
// given.
func boundTokenFile(t *testing.T, cp *daemontest.ControlPlane, account, audience string, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	accounts := cp.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	_, err := accounts.Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, BoundObjectRef: bound}}
	token, err := accounts.CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, token.Status.Token)
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAPIServer checks that agents authenticate with a real API server, and that Leases
// in it count the servers.
func TestAPIServer(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	daemontest.Eventually(t, startBound, func() error {
		_, err := cp.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
	t.Run("tokens", func(t *testing.T) { tokens(t, cp) })
	t.Run("tokens at upstream's servers", func(t *testing.T) { upstreamReviews(t, cp) })
	t.Run("expired token", func(t *testing.T) { expiredToken(t, cp) })
	t.Run("claims", func(t *testing.T) { claims(t, cp) })
	t.Run("disputed addresses", func(t *testing.T) { disputed(t, cp) })
	t.Run("leases", func(t *testing.T) { leases(t, cp) })
}

// tokens checks the authentication of agents by TokenReview. Fairlead's and upstream's
// agents are accepted with a token of the right ServiceAccount and audience
// (system:konnectivity-server), which they read from --service-account-token-path. All
// others are refused and counted.
// It observes KON-42, KON-68 and KON-85 of docs/requirements.md.
func tokens(t *testing.T, cp *daemontest.ControlPlane) {
	good := tokenFile(t, cp, "konnectivity-agent", audience)
	for _, agent := range []release{ours, v0_34_0, v0_36_0} {
		t.Run(agent.String()+" agent", func(t *testing.T) {
			p := startPair(t, options{mode: "grpc", agent: agent, noClientCA: true, serverFlags: reviewFlags(cp), agentFlags: []string{"--service-account-token-path=" + good}})
			conn := p.dial(t)
			for name, path := range badTokens(t, cp, good) {
				before, _ := metric(p.serverHealth, `fairlead_tunnel_server_agents_refused_total{reason="token"}`)
				process, health := p.launchAgent("--service-account-token-path=" + path)
				daemontest.Eventually(t, startBound, func() error {
					n, err := metric(p.serverHealth, `fairlead_tunnel_server_agents_refused_total{reason="token"}`)
					if err == nil && n <= before {
						err = fmt.Errorf("%s: no refusal is counted", name)
					}
					return err
				})
				if get(health+"/readyz") == nil {
					t.Errorf("%s: the agent is ready", name)
				}
				if err := backends(p, 1)(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				_ = process.Signal(os.Kill)
			}
			if err := roundTrip(conn); err != nil {
				t.Errorf("a connection through the good agent: %v", err)
			}
		})
	}
}

// reviewFlags are the flags with which a server reviews the tokens of agents.
func reviewFlags(cp *daemontest.ControlPlane) []string {
	return []string{
		"--agent-namespace=kube-system", "--agent-service-account=konnectivity-agent", "--authentication-audience=" + audience,
		"--kubeconfig=" + cp.Kubeconfig, "--kubeconfig-qps=100", "--kubeconfig-burst=100",
	}
}

// badTokens are files with tokens that are each wrong in one way. The keys say in which
// way.
func badTokens(t *testing.T, cp *daemontest.ControlPlane, good string) map[string]string {
	t.Helper()
	return map[string]string{
		"wrong audience":     tokenFile(t, cp, "konnectivity-agent", "https://127.0.0.1"),
		"another account":    tokenFile(t, cp, "another", audience),
		"no token at all":    write(t, "not a token"),
		"signature is wrong": write(t, spoilt(t, good)),
	}
}

// spoilt returns a token with an invalid signature.
func spoilt(t *testing.T, path string) string {
	t.Helper()
	token, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(token) - 20
	token[at] ^= 1
	return string(token)
}

// leases checks that an agent knows how many servers there are, from the Leases of the
// servers, while servers start and stop. It also checks that no Leases are left when
// the servers have stopped.
// It observes KON-50 of docs/requirements.md.
func leases(t *testing.T, cp *daemontest.ControlPlane) {
	for _, c := range []struct{ server, agent release }{{ours, ours}, {v0_36_0, ours}, {ours, v0_36_0}, {v0_34_0, ours}, {ours, v0_34_0}} {
		t.Run(c.server.String()+" server, "+c.agent.String()+" agent", func(t *testing.T) {
			server := options{mode: "grpc", server: c.server, agent: c.agent, serverFlags: []string{"--enable-lease-controller", "--kubeconfig=" + cp.Kubeconfig}}
			first := server
			first.agentFlags = []string{"--count-server-leases", "--kubeconfig=" + cp.Kubeconfig}
			p := startPair(t, first)
			known := func(want float64) func() error {
				return func() error {
					n, err := metric(p.agentHealth, "konnectivity_network_proxy_agent_known_server_count")
					if err == nil && n != want {
						err = fmt.Errorf("agent knows of %v servers, want %v", n, want)
					}
					return err
				}
			}
			daemontest.Eventually(t, startBound, known(1))
			server.serverFlags = append(server.serverFlags, "--server-id=second")
			second := startPair(t, server)
			daemontest.Eventually(t, startBound, known(2))
			second.server.Terminate(t)
			daemontest.Eventually(t, time.Minute, known(1))
			p.server.Terminate(t)
			daemontest.Eventually(t, startBound, func() error {
				list, err := cp.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-server"})
				if err == nil && len(list.Items) > 0 {
					err = fmt.Errorf("%d Leases are left", len(list.Items))
				}
				return err
			})
		})
	}
}
