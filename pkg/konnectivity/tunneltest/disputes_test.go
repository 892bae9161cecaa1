// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// nodeAPI answers GET and LIST of Nodes, as an API server does, from what tests set.
type nodeAPI struct {
	mu    sync.Mutex
	nodes map[string][]string
	pods  map[string][]string
}

// setPods says which ranges of Pods a Node has.
func (n *nodeAPI) setPods(node string, cidrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = map[string][]string{node: cidrs}
}

// set says which addresses a Node has.
func (n *nodeAPI) set(node string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		n.nodes = map[string][]string{}
	}
	n.nodes[node] = addresses
}

func (n *nodeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	object := func(name string) map[string]any {
		addresses := []map[string]string{}
		for _, a := range n.nodes[name] {
			addresses = append(addresses, map[string]string{"type": "InternalIP", "address": a})
		}
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"podCIDRs": n.pods[name]}, "status": map[string]any{"addresses": addresses}}
	}
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	var answer any
	if one {
		answer = object(name)
	} else {
		items := []any{}
		for name := range n.nodes {
			items = append(items, object(name))
		}
		answer = map[string]any{"items": items}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// claims are those of a server that asks the API.
func (n *nodeAPI) claims(t *testing.T) server.Claims {
	t.Helper()
	srv := httptest.NewServer(n)
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":%q}}]}`, srv.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := apiclient.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client := apiclient.NewClient(cfg)
	t.Cleanup(client.CloseIdle)
	nodes := &apiclient.Nodes{Client: client}
	return server.Claims{By: "node", NodeAddresses: nodes.Addresses, NodesWith: nodes.With, PodRange: nodes.PodRange, Recheck: 50 * time.Millisecond}
}

// disputeRig has the Nodes node-1 to node-6, agents on node-3 to node-6, and a destination on
// node-2. node-2 has victimIP.
type disputeRig struct {
	*Rig
	logs
	api    *nodeAPI
	target string
}

const victimIP = "127.0.0.2"

func newDisputeRig(t *testing.T) *disputeRig {
	r := &disputeRig{api: &nodeAPI{}, target: TargetAt(t, victimIP+":0", Echo)}
	r.api.set("node-1", "192.0.2.1")
	r.api.set("node-2", victimIP)
	return r.with(t, r.api.claims(t))
}

// with starts a server with these claims in place of the rig's.
func (r *disputeRig) with(t *testing.T, claims server.Claims) *disputeRig {
	r = &disputeRig{api: r.api, target: r.target}
	r.Rig = NewRig(t, server.Config{Tokens: boundTokens{}, Claims: claims, Logger: r.logger(),
		Strategies: []server.Strategy{server.StrategyDestHost, server.StrategyDefault}})
	for i := 3; i <= 6; i++ {
		node, ip := fmt.Sprint("node-", i), fmt.Sprint("192.0.2.", i)
		r.api.set(node, ip)
		r.StartAgent(agentOf(node, agent.Config{Identifiers: "host=" + node + "&ipv4=" + ip}), "")
	}
	return r
}

// dial dials node-2 n times and returns how many of the dials the agents got.
func (r *disputeRig) dial(t *testing.T, n int, agents ...*Agent) int {
	t.Helper()
	before := dialsOf(agents)
	for range n {
		c, err := Connect(r.Connect)(t.Context(), r.target)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	return dialsOf(agents) - before
}

func (r *disputeRig) disputes() float64 {
	return Metric(r.Metrics.Registry, "fairlead_tunnel_server_disputed_hosts_total")
}

// checkShare dials node-2 and checks that the agent of node-1 gets no more of the dials than
// any agent may, and that the dispute is counted and logged.
func (r *disputeRig) checkShare(t *testing.T, rogue *Agent) {
	t.Helper()
	const calls = 200
	got := r.dial(t, calls, rogue)
	t.Logf("%d of %d calls for node-2 reach the agent of node-1 (%d %%)", got, calls, 100*got/calls)
	if got > calls/2 { // with the strategy default it gets a fifth or a sixth; with destHost it would get all
		t.Errorf("node-1 gets %d of %d calls for node-2", got, calls)
	}
	lines := r.logged("agents of node")
	if len(lines) == 0 || r.disputes() == 0 {
		t.Fatalf("%v disputes are counted and logged as %q", r.disputes(), lines)
	}
	for _, text := range []string{`"` + victimIP + `"`, `"node-1"`, `"node-2"`} {
		if !strings.Contains(lines[0], text) {
			t.Errorf("logged %q, want %s in it", lines[0], text)
		}
	}
}

// TestAddressOfAnotherNode is an attack: the kubelet of node-1 writes the address and the name
// of node-2 into the status of its own Node, which it may, and its agent claims them. Strategy
// destHost gives it none of node-2's calls for that, whether node-2 has an agent or not, and
// whether its Node was there first or not; what it gets is the share of any agent by the next
// strategy. It is counted and logged.
func TestAddressOfAnotherNode(t *testing.T) {
	t.Parallel()
	rogueConfig := agentOf("node-1", agent.Config{AgentID: "rogue", Identifiers: "ipv4=" + victimIP})
	victimConfig := agentOf("node-2", agent.Config{AgentID: "victim", Identifiers: "ipv4=" + victimIP + "&host=node-2"})
	steal := func(r *disputeRig) { r.api.set("node-1", "192.0.2.1", victimIP, "node-2") }
	t.Run("node-2 has no agent", func(t *testing.T) {
		r := newDisputeRig(t)
		steal(r)
		rogue := r.StartAgent(rogueConfig, "")
		r.checkShare(t, rogue)
	})
	t.Run("node-2 has an agent", func(t *testing.T) {
		r := newDisputeRig(t)
		victim := r.StartAgent(victimConfig, "")
		if got := r.dial(t, 10, victim); got != 10 {
			t.Errorf("before the attack %d of 10 calls for node-2 go to its own agent", got)
		}
		steal(r)
		rogue := r.StartAgent(rogueConfig, "")
		r.checkShare(t, rogue)
		rogue.Stop()
		r.api.set("node-1", "192.0.2.1")
		Eventually(t, Patience, "node-2's agent gets all of its node's calls again", func() bool { return r.dial(t, 10, victim) == 10 })
	})
	t.Run("node-2 comes later", func(t *testing.T) {
		r := newDisputeRig(t)
		r.api.set("node-2")
		steal(r)
		rogue := r.StartAgent(rogueConfig, "")
		r.api.set("node-2", victimIP)
		Eventually(t, Patience, "the dispute is found", func() bool { return r.disputes() > 0 })
		r.checkShare(t, rogue)
	})
	t.Run("the name of node-2", func(t *testing.T) {
		r := newDisputeRig(t)
		steal(r)
		rogue := r.LaunchAgent(agentOf("node-1", agent.Config{AgentID: "rogue", Identifiers: "host=Node-2"}), "")
		Eventually(t, Patience, "the agent is refused", func() bool {
			return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="claims"}`) >= 2
		})
		r.wantOneOf(t, `reason="claims"`, "name of another node")
		if rogue.Ready() {
			t.Error("an agent that claims the name of another node is connected")
		}
	})
}

// TestAddressOfNoNode is an attack: the kubelet of node-1 writes an address of a Pod or of a
// Service into the status of its own Node, and its agent claims it. No other Node has it, but
// strategy destHost does not give it the calls for that address; it is counted and logged.
func TestAddressOfNoNode(t *testing.T) {
	t.Parallel()
	rogueConfig := agentOf("node-1", agent.Config{AgentID: "rogue", Identifiers: "ipv4=" + victimIP})
	for name, c := range map[string]struct {
		pods, services string
		later          bool
		want           string
	}{
		"a Pod of another node":  {pods: "127.0.0.0/24", want: `spec.podCIDRs (127.0.0.0/24) of Node "node-3"`},
		"a Pod, known later":     {pods: "127.0.0.0/24", later: true, want: `spec.podCIDRs (127.0.0.0/24) of Node "node-3"`},
		"a Service":              {services: "127.0.0.0/30", want: "127.0.0.0/30 of --non-node-cidrs"},
		"a Service in IPv6 form": {services: "127.0.0.2/32", want: "127.0.0.2/32 of --non-node-cidrs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDisputeRig(t)
			r.api.set("node-2", "192.0.2.2")
			r.api.set("node-1", "192.0.2.1", victimIP)
			claims := r.api.claims(t)
			if c.services != "" {
				claims.NonNodeCIDRs = []netip.Prefix{netip.MustParsePrefix(c.services)}
			}
			r = r.with(t, claims)
			if c.pods != "" && !c.later {
				r.api.setPods("node-3", c.pods)
			}
			cfg := rogueConfig
			if strings.Contains(name, "IPv6") {
				cfg.Identifiers = "ipv6=::ffff:" + victimIP
			}
			rogue := r.StartAgent(cfg, "")
			if c.later {
				if got := r.dial(t, 5, rogue); got != 5 {
					t.Fatalf("%d of 5 calls reach the agent while the range is unknown: the test proves nothing", got)
				}
				r.api.setPods("node-3", c.pods)
			}
			Eventually(t, Patience, "the claim is counted", func() bool { return r.disputes() > 0 })
			const calls = 100
			if got := r.dial(t, calls, rogue); got > calls/2 {
				t.Errorf("node-1 gets %d of %d calls", got, calls)
			}
			if lines := r.logged("agents of node"); len(lines) == 0 || !strings.Contains(lines[0], c.want) || !strings.Contains(lines[0], `"node-1"`) {
				t.Errorf("logged %q, want %s in it", lines, c.want)
			}
		})
	}
}

// TestOwnNodeFirst: with both strategies calls for a node go to its own agent, and while
// that is away to others, without a failure. A destination in another form is the same node.
func TestOwnNodeFirst(t *testing.T) {
	t.Parallel()
	r := newDisputeRig(t)
	own := r.StartAgent(agentOf("node-2", agent.Config{AgentID: "own", Identifiers: "ipv4=" + victimIP}), "")
	_, port, err := net.SplitHostPort(r.target)
	if err != nil {
		t.Fatal(err)
	}
	plain := r.target
	for _, target := range []string{plain, net.JoinHostPort("::ffff:"+victimIP, port)} {
		r.target = target
		if got := r.dial(t, 20, own); got != 20 {
			t.Errorf("%s: %d of 20 calls go to the node's own agent", target, got)
		}
	}
	own.Stop()
	r.target = plain
	if got := r.dial(t, 20, own); got != 0 {
		t.Errorf("an agent that has stopped gets %d calls", got)
	}
}

// TestIdentifiersThatMatchNothing: the server names them once for an agent that connects
// again and again. The agent serves by other strategies all the same.
func TestIdentifiersThatMatchNothing(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			said := &logs{}
			r := NewRig(t, server.Config{Logger: said.logger(), Protocol: Only(upstreamOnly)})
			for range 3 {
				r.StartAgent(agent.Config{AgentID: "odd", Identifiers: "ipv4=$(HOST_IP)&host=fine&default-route=yes"}, "").Stop()
				Eventually(t, Patience, "the agent is gone", func() bool { return !r.Server.Connected("odd") })
			}
			said.wantOneOf(t, "identifiers that match no destination", `address="127.0.0.1:`, `ipv4="$(HOST_IP)"`, `default-route="yes"`)
			r.StartAgent(agent.Config{Identifiers: "ipv4=192.0.2.1&host=Fine&default-route=true"}, "")
			if lines := said.logged("match no destination"); len(lines) != 1 {
				t.Errorf("identifiers that are right are named: %q", lines)
			}
			MustDial(t, Connect(r.Connect), Target(t, Echo))
		})
	}
}
