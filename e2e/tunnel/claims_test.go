package tunnel

import (
	"fmt"
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// podToken makes a Node with an address and a Pod on it, and writes a token of that
// Pod, as the kubelet projects it.
func podToken(t *testing.T, cp *daemontest.ControlPlane, node, address string) string {
	t.Helper()
	const account = "konnectivity-agent"
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	n, err := cp.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err == nil {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		_, err = cp.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	tokenFile(t, cp, account, audience) // makes the account
	pod, err := cp.Client.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "agent", Image: "example.test/agent"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return boundTokenFile(t, cp, account, audience, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

// claims: with what a bundle sets, agents of ours and of upstream's may claim their
// own node and its addresses. One that claims another's, or the default route, is
// refused and counted, and nobody else notices.
func claims(t *testing.T, cp *daemontest.ControlPlane) {
	token := podToken(t, cp, "node-a", "192.0.2.1")
	podToken(t, cp, "node-b", "192.0.2.2")
	unbound := tokenFile(t, cp, "konnectivity-agent", audience)
	flags := reviewFlags(cp)
	for _, agent := range []release{ours, v0_34_0, v0_36_0} {
		t.Run(agent.String()+" agent", func(t *testing.T) {
			p := startPair(t, options{
				mode: "grpc", agent: agent, noClientCA: true, serverFlags: flags, serverEnv: []string{"FAIRLEAD_AGENT_CLAIMS=node"},
				agentFlags: []string{"--service-account-token-path=" + token, "--agent-identifiers=host=node-a&ipv4=192.0.2.1"},
			})
			conn := p.dial(t)
			const refused = `fairlead_tunnel_server_agents_refused_total{reason="claims"}`
			for _, c := range []struct{ token, identifiers string }{
				{token, "host=node-b"}, {token, "ipv4=192.0.2.2"}, {token, "host=node-a&host=node-b"},
				{token, "default-route=true"}, {unbound, "host=node-a"}, {unbound, "default-route=true"},
			} {
				before, _ := metric(p.serverHealth, refused)
				process, health := p.launchAgent("--service-account-token-path="+c.token, "--agent-identifiers="+c.identifiers)
				daemontest.Eventually(t, startBound, func() error {
					n, err := metric(p.serverHealth, refused)
					if err == nil && n <= before {
						err = fmt.Errorf("%s: no refusal is counted", c.identifiers)
					}
					return err
				})
				if get(health+"/readyz") == nil {
					t.Errorf("%s: the agent is ready", c.identifiers)
				}
				_ = process.Signal(os.Kill)
			}
			if err := backends(p, 1)(); err != nil {
				t.Error(err)
			}
			if err := roundTrip(conn); err != nil {
				t.Errorf("a connection through the honest agent: %v", err)
			}
		})
	}
}
