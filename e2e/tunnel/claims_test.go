// SPDX-License-Identifier: Apache-2.0

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

// podToken creates a Node with an address and a Pod on that Node, and writes a token of
// that Pod to a file, as the kubelet projects it.
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
	tokenFile(t, cp, account, audience) // creates the account
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

// disputed checks a kubelet that writes another Node's address into the status of its own
// Node, and whose agent claims that address. The agent connects, but gets no dial for that
// address. An agent that claims the name of another Node is refused although the status has
// the address.
func disputed(t *testing.T, cp *daemontest.ControlPlane) {
	token := podToken(t, cp, "node-c", "192.0.2.3")
	podToken(t, cp, "node-d", "127.0.0.1")
	n, err := cp.Client.CoreV1().Nodes().Get(t.Context(), "node-c", metav1.GetOptions{})
	if err == nil {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "127.0.0.1"},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-d"})
		_, err = cp.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	p := startPair(t, options{
		mode: "grpc", noClientCA: true, serverEnv: []string{"FAIRLEAD_AGENT_CLAIMS=node"},
		serverFlags: append(reviewFlags(cp), "--proxy-strategies=destHost,default"),
		agentFlags:  []string{"--service-account-token-path=" + token, "--agent-identifiers=ipv4=127.0.0.1"},
	})
	n1, err := metric(p.serverHealth, "fairlead_tunnel_server_disputed_hosts_total")
	if err != nil || n1 != 1 {
		t.Errorf("%v disputes are counted, want 1 (%v)", n1, err)
	}
	if err := roundTrip(p.dial(t)); err != nil { // routed by the strategy default
		t.Error(err)
	}
	_, health := p.launchAgent("--service-account-token-path="+token, "--agent-identifiers=host=node-d")
	daemontest.Eventually(t, startBound, func() error {
		n, err := metric(p.serverHealth, `fairlead_tunnel_server_agents_refused_total{reason="claims"}`)
		if err == nil && n == 0 {
			err = fmt.Errorf("no refusal is counted")
		}
		return err
	})
	if get(health+"/readyz") == nil {
		t.Error("an agent that claims the name of another node is ready")
	}
}

// claims checks that, with the settings of a bundle, Fairlead's and upstream's agents may
// claim their own Node and its addresses. The server refuses and counts an agent that
// claims those of another Node, or the default route, and no other agent is affected.
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
				{token, "default-route=true"}, {unbound, "host=node-a"}, {unbound, "default-route=true"}, {unbound, ""},
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
