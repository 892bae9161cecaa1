// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

func testPlan(t *testing.T, config string) *plan {
	t.Helper()
	b, err := bundle.Load([]byte(bundletest.Old(config)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout("/state", "dev")
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{Layout: l, bundle: b, bins: map[string]string{}, nodeSecret: "secret"}
	p.state = State{Record: cluster.Record{Name: "dev", Nodes: 3}, Agents: 2, Schedulers: replicas(b), HostIP: "192.0.2.7", Ports: map[string]int{}}
	for i, name := range portNames(2, p.state.Schedulers) {
		p.state.Ports[name] = 21000 + i
	}
	for _, name := range []string{"fairlead", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "fairlead-scheduler", "konnectivity-server", "konnectivity-agent", "fairlead-apiserver", "fairlead-operator"} {
		p.bins[name] = "/bin/" + name
	}
	return p
}

func specs(t *testing.T, p *plan) map[string]process.Spec {
	t.Helper()
	list, err := p.programs()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]process.Spec{}
	for _, s := range list {
		byName[s.Name] = s
	}
	return byName
}

// flagMap splits --name=value.
func flagMap(t *testing.T, args []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if _, twice := m[name]; twice || !ok {
			t.Errorf("argument %q is given twice or has no value", arg)
		}
		m[name] = value
	}
	return m
}

// A local process has every flag that the Pod has, with the same value, except for
// paths, ports and what this test lists: every argument has a single source.
func TestProcessesGetTheBundlesArguments(t *testing.T) {
	p := testPlan(t, `
scheduler: {extraArgs: [{name: v, value: "3"}]}
konnectivity:
  authenticationAudience: other-audience
  server: {proxyStrategies: [defaultRoute], extraArgs: [{name: keepalive-time, value: 30s}]}
  agent: {identifiers: default-route=true}
`)
	all := specs(t, p)
	for name, tc := range map[string]struct {
		component component.Component
		program   string
		differ    []string
	}{
		"konnectivity-server":  {konnectivity.Server(p.bundle), "konnectivity-server", []string{"server-count", "server-id"}},
		"konnectivity-agent-1": {konnectivity.Agent(p.bundle), "konnectivity-agent", []string{"proxy-server-host"}},
		"second-scheduler-1":   {scheduler.Component(p.bundle), "fairlead-scheduler", nil},
		"second-scheduler-0":   {scheduler.Component(p.bundle), "fairlead-scheduler", nil},
	} {
		spec, ok := all[name]
		if !ok || spec.Path != "/bin/"+tc.program {
			t.Errorf("%s is %q", name, spec.Path)
			continue
		}
		got := flagMap(t, spec.Args)
		if len(tc.component.Flags) < 3 {
			t.Errorf("%s: the component has only %d flags: this test compares nothing", name, len(tc.component.Flags))
		}
		for _, f := range tc.component.Flags {
			value, ok := got[f.Name]
			if !ok {
				t.Errorf("%s lacks --%s", name, f.Name)
			}
			if f.Kind == component.Plain && value != f.Value && !slices.Contains(tc.differ, f.Name) {
				t.Errorf("%s: --%s=%s, the Pod has %s", name, f.Name, value, f.Value)
			}
			if f.Kind == component.Path && !strings.HasPrefix(value, "/state/dev/") {
				t.Errorf("%s: --%s=%s is a path of the Pod, not of the cluster", name, f.Name, value)
			}
		}
	}
}

// Every part has the environment of its Pod, as far as that does not depend on the Pod.
// The server's environment says, for example, which identifiers agents may claim.
func TestProcessesGetTheBundlesEnvironment(t *testing.T) {
	p := testPlan(t, "konnectivity: {server: {drainTimeout: 7s, proxyStrategies: [destHost, default]}, agent: {identifiers: host=$(NODE_NAME)}}")
	all := specs(t, p)
	for name, c := range map[string]component.Component{
		"konnectivity-server": konnectivity.Server(p.bundle), "konnectivity-agent-1": konnectivity.Agent(p.bundle), "second-scheduler-0": scheduler.Component(p.bundle),
	} {
		for _, e := range c.Env {
			if has := slices.Contains(all[name].Env, e.Name+"="+e.Value); has != (e.ValueFrom == nil) {
				t.Errorf("%s: %s=%s is there: %v", name, e.Name, e.Value, has)
			}
		}
		if !slices.Contains(all[name].Env, "HOME=/state/dev") {
			t.Errorf("%s: environment %q", name, all[name].Env)
		}
	}
	for _, want := range []string{settings.AgentClaims + "=node", settings.DrainTimeout + "=7s"} {
		if env := all["konnectivity-server"].Env; !slices.Contains(env, want) {
			t.Errorf("the server's environment is %q, want %s", env, want)
		}
	}
}

// Settings that two sides must agree on have a single source, whatever the bundle says.
// It observes KON-07 of docs/requirements.md.
func TestSidesAgree(t *testing.T) {
	p := testPlan(t, "konnectivity: {agentPort: 9132, transport: {uds: {path: /elsewhere/k.sock}}}")
	all := specs(t, p)
	server, agent := flagMap(t, all["konnectivity-server"].Args), flagMap(t, all["konnectivity-agent-0"].Args)
	if server["agent-port"] != agent["proxy-server-port"] || server["agent-port"] != p.port(portTunnelAgents) {
		t.Errorf("server listens on %s, agent dials %s, chosen was %s", server["agent-port"], agent["proxy-server-port"], p.port(portTunnelAgents))
	}
	selector := flagMap(t, all["kube-apiserver"].Args)["egress-selector-config-file"]
	if selector != p.egressFile() {
		t.Errorf("kube-apiserver reads %s, written is %s", selector, p.egressFile())
	}
	if server["uds-name"] != p.TunnelSocket() {
		t.Errorf("server listens on %s, the egress selector says %s", server["uds-name"], p.TunnelSocket())
	}
	other := flagMap(t, all["konnectivity-agent-1"].Args)
	if other["health-server-port"] == agent["health-server-port"] || other["admin-server-port"] == agent["admin-server-port"] {
		t.Errorf("two agents share a port: %v, %v", agent, other)
	}
	if other["service-account-token-path"] != p.Token("konnectivity-agent-1") {
		t.Errorf("agent 1 reads the token %s", other["service-account-token-path"])
	}
}

func TestProgramsThatAreSwitchedOff(t *testing.T) {
	all := specs(t, testPlan(t, "konnectivity: {enabled: false}"))
	if _, ok := all["konnectivity-server"]; ok {
		t.Error("konnectivity-server runs though konnectivity is off")
	}
	if args := strings.Join(all["kube-apiserver"].Args, " "); strings.Contains(args, "egress-selector") {
		t.Error("kube-apiserver has an egress selector though konnectivity is off")
	}
	all = specs(t, testPlan(t, "scheduler: {enabled: false}"))
	if _, ok := all["second-scheduler-0"]; ok {
		t.Error("a second scheduler runs though it is off")
	}
	all = specs(t, testPlan(t, "scheduler: {replicas: 3}"))
	if _, ok := all["second-scheduler-2"]; !ok {
		t.Error("the third replica is missing")
	}
}

// kube-apiserver presents a front proxy client certificate of a separate CA to
// extension API servers, sends the standard request headers, and routes to endpoint
// IPs. The front proxy CA must not be the client CA: otherwise any client certificate
// with an allowed name could impersonate every user.
// It observes AGG-01 and AGG-32 of docs/requirements.md.
func TestFrontProxyOfTheAPIServer(t *testing.T) {
	flags := flagMap(t, specs(t, testPlan(t, ""))["kube-apiserver"].Args)
	for name, want := range map[string]string{
		"proxy-client-cert-file":             "/state/dev/pki/front-proxy-client.crt",
		"proxy-client-key-file":              "/state/dev/pki/front-proxy-client.key",
		"requestheader-client-ca-file":       "/state/dev/pki/front-proxy-ca.crt",
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-uid-headers":          "X-Remote-Uid",
		"enable-aggregator-routing":          "true",
	} {
		if flags[name] != want {
			t.Errorf("--%s=%s, want %s", name, flags[name], want)
		}
	}
	if flags["client-ca-file"] == flags["requestheader-client-ca-file"] {
		t.Error("clients and the front proxy share a CA")
	}
}

// TestTokensAreForTheRightAccounts observes KON-06 of docs/requirements.md.
func TestTokensAreForTheRightAccounts(t *testing.T) {
	p := testPlan(t, "")
	byFile := map[string]Projection{}
	for _, projection := range p.projections() {
		byFile[filepath.Base(filepath.Dir(projection.File))] = projection
	}
	agent, second := byFile["konnectivity-agent-0"], byFile["second-scheduler-1"]
	if agent.ServiceAccount != "konnectivity-agent" || agent.Audience != "system:konnectivity-server" || agent.Namespace != "kube-system" {
		t.Errorf("agent: %+v", agent)
	}
	if second.ServiceAccount != "my-scheduler" || second.Audience != "" {
		t.Errorf("second scheduler: %+v", second)
	}
	if len(byFile) != 4 {
		t.Errorf("%d tokens, want one for each of two agents and two replicas", len(byFile))
	}
	if !ptr.Deref(p.bundle.Konnectivity.Enabled, false) {
		t.Error("the default bundle has konnectivity off")
	}
}

// Agents have tokens that name their node, as in Pods, with or without identifiers:
// otherwise the server refuses them.
func TestAgentsTokensNameTheNode(t *testing.T) {
	for identifiers, strategy := range map[string]string{"": "default", "host=$(NODE_NAME)": "destHost, default"} {
		const want = "node-2"
		p := testPlan(t, "konnectivity: {agent: {identifiers: '"+identifiers+"'}, server: {proxyStrategies: ["+strategy+"]}}")
		for _, projection := range p.projections() {
			if projection.File == p.Token(agentName(1)) && projection.Node != want {
				t.Errorf("identifiers %q: the token of agent 1 is bound to node %q, want %q", identifiers, projection.Node, want)
			}
		}
	}
	var asked *authenticationv1.TokenRequest
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action ktesting.Action) (bool, runtime.Object, error) {
		asked = action.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
		return true, &authenticationv1.TokenRequest{}, nil
	})
	file := filepath.Join(t.TempDir(), "token")
	if _, err := (Projection{Namespace: "ns", ServiceAccount: "sa", Node: "node-2", File: file}).renew(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if ref := asked.Spec.BoundObjectRef; ref == nil || *ref != (authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-2"}) {
		t.Errorf("asked for a token bound to %+v", ref)
	}
}

// TestSystem: systems without the features that processes need are refused, with what to do instead.
func TestSystem(t *testing.T) {
	if err := checkSystem("linux"); err != nil {
		t.Error(err)
	}
	if err := checkSystem("darwin"); err == nil || !strings.Contains(err.Error(), "darwin: a cluster of processes needs Linux") {
		t.Errorf("darwin: %v", err)
	}
}
