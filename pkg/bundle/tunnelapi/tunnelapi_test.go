// SPDX-License-Identifier: Apache-2.0

package tunnelapi_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	psaapi "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	serverapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/server/app"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/app"
)

func load(t *testing.T, config string) *v1alpha1.Bundle {
	t.Helper()
	b, err := bundle.Load([]byte(bundletest.Old(config)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func objects(t *testing.T, config string) []component.Object {
	t.Helper()
	list, err := tunnelapi.Objects(load(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestObjects: which objects are rendered; none by default, no disruption budget for a single replica, whose node could not
// be drained, and no APIService without the CA that verifies its server, because it would not be available.
// It observes EXT-07 and EXT-09 of docs/requirements.md.
func TestObjects(t *testing.T) {
	kinds := func(config string) (out []string) {
		for _, o := range objects(t, config) {
			out = append(out, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
		}
		return out
	}
	const name = " fairlead-apiserver"
	all := []string{
		"ServiceAccount" + name, "ClusterRole fairlead-tunnel-viewer",
		"ClusterRoleBinding kube-system:fairlead-apiserver:auth-delegator", "RoleBinding kube-system:fairlead-apiserver:authentication-reader",
		"Service" + name, "PriorityLevelConfiguration fairlead-tunnel-api", "FlowSchema fairlead-tunnel-api", "FlowSchema" + name,
		"PodDisruptionBudget" + name, "Deployment" + name,
	}
	for config, want := range map[string][]string{
		"": nil, "tunnelAPI: {enabled: true}": all,
		"tunnelAPI: {enabled: true, replicas: 1}": slices.Concat(all[:8], all[9:]),
	} {
		if diff := cmp.Diff(want, kinds(config)); diff != "" {
			t.Errorf("%q: -want +got\n%s", config, diff)
		}
	}
}

// TestRights: the server may review tokens and access and read the front proxy's CA, and a user with the viewer's role may
// only read.
// It observes AGG-22, AGG-23, EXT-10, EXT-11, EXT-12 and EXT-13 of docs/requirements.md.
// It also observes OLD-92 of docs/requirements.md.
func TestRights(t *testing.T) {
	var bound []string
	var viewer []rbacv1.PolicyRule
	for _, o := range objects(t, "namespace: tunnel\ntunnelAPI: {enabled: true}") {
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			bound = append(bound, o.RoleRef.Name+" to "+o.Subjects[0].Namespace+"/"+o.Subjects[0].Name)
		case *rbacv1.RoleBinding:
			bound = append(bound, o.Namespace+"/"+o.RoleRef.Name+" to "+o.Subjects[0].Namespace+"/"+o.Subjects[0].Name)
		case *rbacv1.ClusterRole:
			viewer = append(viewer, o.Rules...)
			for _, rule := range o.Rules {
				if !slices.Equal(rule.APIGroups, []string{"tunnel.fairlead.dev"}) || slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }) {
					t.Errorf("%s allows %+v", o.Name, rule)
				}
			}
		}
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"tunnel.fairlead.dev"}, Resources: []string{"tunnelagents", "tunnelservers"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"tunnel.fairlead.dev"}, Resources: []string{"tunnelconnections"}, Verbs: []string{"get", "list"}},
	}
	if diff := cmp.Diff(rules, viewer); diff != "" {
		t.Errorf("the viewer's role (-want +got):\n%s", diff)
	}
	want := []string{"system:auth-delegator to tunnel/fairlead-apiserver", "kube-system/extension-apiserver-authentication-reader to tunnel/fairlead-apiserver"}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestNamespace: the bundle has the namespace of the server before what is in it, unless it is one of Kubernetes' own.
// It observes EXT-03 of docs/requirements.md.
func TestNamespace(t *testing.T) {
	for config, want := range map[string]string{"namespace: tunnel\ntunnelAPI: {enabled: true}": "tunnel", "tunnelAPI: {enabled: true}": "kube-system"} {
		out, err := bundle.Render(load(t, config))
		if err != nil {
			t.Fatal(err)
		}
		exists, servers := component.IsBuiltInNamespace(want), 0
		for _, o := range out.Objects {
			if ns, ok := o.(*corev1.Namespace); ok {
				exists = exists || ns.Name == want
				if component.IsBuiltInNamespace(ns.Name) {
					t.Errorf("%q: the bundle has namespace %s", config, ns.Name)
				}
			}
			if d, ok := o.(*appsv1.Deployment); ok && d.Name == v1alpha1.TunnelAPIName {
				servers++
				if d.Namespace != want || !exists {
					t.Errorf("%q: the server is in namespace %s, want %s, which exists: %t", config, d.Namespace, want, exists)
				}
			}
		}
		if servers != 1 {
			t.Errorf("%q: %d Deployments of the server", config, servers)
		}
	}
}

// TestProgramAcceptsArguments: the program's own flags and validation accept what the Deployment passes, the Pod meets level
// restricted, and the probes need no port of their own.
// It observes EXT-07 and EXT-19 of docs/requirements.md.
func TestProgramAcceptsArguments(t *testing.T) {
	b := load(t, "tunnelAPI: {enabled: true, port: 8443, extraArgs: [{name: poll-interval, value: 2s}]}")
	list := objects(t, "tunnelAPI: {enabled: true, port: 8443, extraArgs: [{name: poll-interval, value: 2s}]}")
	pod := list[len(list)-1].(*appsv1.Deployment).Spec.Template
	cmd := app.NewCommand()
	if err := cmd.ParseFlags(pod.Spec.Containers[0].Args); err != nil {
		t.Fatalf("%q: %v", pod.Spec.Containers[0].Args, err)
	}
	for flag, want := range map[string]string{"secure-port": "8443", "poll-interval": "2s", "konnectivity-server": "[" + tunnelapi.StateURL(b) + "]"} {
		if got := cmd.Flag(flag).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", flag, got, want)
		}
	}
	o := app.NewOptions()
	o.Servers, o.ServerTokenFile = []string{tunnelapi.StateURL(b)}, "/token"
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			t.Errorf("not restricted: %s", r.ForbiddenReason)
		}
	}
}

// TestPairs: what the Konnectivity servers and the API server must agree on is equal, also if it is not the default: port,
// host, account and audience of the state, and the address at which the servers connect to the API themselves.
// It observes EXT-16 of docs/requirements.md.
func TestPairs(t *testing.T) {
	for _, config := range []string{
		"tunnelAPI: {enabled: true}",
		"namespace: tunnel\nkonnectivity: {serverHost: tunnel.example.org}\ntunnelAPI: {enabled: true, statePort: 8095, clusterIP: 10.96.0.93}",
		"tunnelAPI: {enabled: true, clusterIP: 'fd00::93'}",
	} {
		b := load(t, config)
		for _, e := range konnectivity.Server(b).Env {
			t.Setenv(e.Name, e.Value)
		}
		server, c := serverapp.NewOptions(), tunnelapi.Component(b)
		var token *component.Token
		for _, v := range c.Volumes {
			if v.Token != nil {
				token = v.Token
			}
		}
		want := "https://" + net.JoinHostPort(b.Konnectivity.ServerHost, strconv.Itoa(server.StatePort))
		if got := tunnelapi.StateURL(b); got != want {
			t.Errorf("%q: the API server asks %s, the servers answer at %s", config, got, want)
		}
		if server.StateServiceAccount != c.Namespace+"/"+c.ServiceAccount || server.StateAudience != token.Audience {
			t.Errorf("%q: servers accept %s for %s, the API server is %s/%s for %s", config, server.StateServiceAccount, server.StateAudience, c.Namespace, c.ServiceAccount, token.Audience)
		}
		var local []string
		if ip := b.TunnelAPI.ClusterIP; ip != "" {
			local = []string{net.JoinHostPort(ip, "443")}
		}
		if !slices.Equal(server.LocalDestinations, local) {
			t.Errorf("%q: local destinations %q, want %q", config, server.LocalDestinations, local)
		}
		list := objects(t, config)
		service := list[slices.IndexFunc(list, func(o component.Object) bool { _, is := o.(*corev1.Service); return is })].(*corev1.Service)
		if r := tunnelapi.Request(b); service.Name != r.Service || service.Namespace != r.Namespace || service.Spec.Ports[0].Port != r.Port || service.Spec.ClusterIP != b.TunnelAPI.ClusterIP {
			t.Errorf("%q: the APIService names %+v, the Service is %+v", config, r, service.Spec)
		}
		t.Setenv(settings.LocalDestinations, "")
	}
}

// TestRefuses: what cannot work is refused, with the field and what to do.
func TestRefuses(t *testing.T) {
	for config, want := range map[string]string{
		"tunnelAPI: {enabled: true}\nkonnectivity: {enabled: false}": "spec.tunnelAPI.enabled",
		"tunnelAPI: {enabled: true, replicas: 0}":                    "spec.tunnelAPI.replicas",
		"tunnelAPI: {enabled: true, replicas: 6}":                    "must be at most 5",
		"tunnelAPI: {enabled: true, port: 443}":                      "spec.tunnelAPI.port",
		"tunnelAPI: {enabled: true, statePort: 8132}":                "is also konnectivity.agentPort",
		"tunnelAPI: {enabled: true, statePort: 8134}\nkonnectivity: {agent: {hostNetwork: true, healthPort: 8134, adminPort: 8135}}":                 "is also konnectivity.agent.healthPort",
		"tunnelAPI: {enabled: true, statePort: 8135}\nkonnectivity: {agent: {hostNetwork: true, healthPort: 8134, adminPort: 8135}}":                 "is also konnectivity.agent.adminPort",
		"tunnelAPI: {enabled: true, statePort: 8090}\nkonnectivity: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://127.0.0.1:8090'}}}": "is also konnectivity.transport.tcp.url",
		"tunnelAPI: {enabled: true, statePort: 9444}\ngateway: {enabled: true, form: StaticPod, port: 9444}":                                         "is also gateway.port",
		"tunnelAPI: {enabled: true, statePort: 9445}\ngateway: {enabled: true, form: StaticPod, healthPort: 9445}":                                   "is also gateway.healthPort",
		"tunnelAPI: {enabled: true, statePort: 10359}\nscheduler: {form: StaticPod, securePort: 10359}":                                              "is also scheduler.securePort",
		"tunnelAPI: {enabled: true, statePort: 6443}":                                                                                              "on a control plane node",
		"tunnelAPI: {enabled: true, clusterIP: web}":                                                                                               "spec.tunnelAPI.clusterIP",
		"tunnelAPI: {enabled: true, clusterIP: 10.96.0.93}\naggregation: {enableAggregatorRouting: true}":                                          "enableAggregatorRouting",
		"tunnelAPI: {enabled: true, certificateSecret: mine}":                                                                                      "spec.tunnelAPI.caBundle",
		"tunnelAPI: {enabled: true, caBundle: x}":                                                                                                  "certificateSecret",
		"tunnelAPI: {enabled: true, certificateSecret: mine, caBundle: x}":                                                                         "must be certificates in PEM",
		"tunnelAPI: {enabled: true, extraArgs: [{name: secure-port, value: '1'}]}":                                                                 "set tunnelAPI.port instead",
		"tunnelAPI: {enabled: true}\nkonnectivity: {server: {extraArgs: [{name: state-port, value: '8093'}]}}":                                     "set tunnelAPI.statePort instead",
		"tunnelAPI: {enabled: true, clusterIP: 10.96.0.93}\nkonnectivity: {server: {extraArgs: [{name: local-destinations, value: '1.2.3.4:5'}]}}": "tunnelAPI.clusterIP sets it",
		"tunnelAPI: {enabled: true}\nscheduler: {name: fairlead-apiserver}":                                                                        "spec.scheduler.name",
	} {
		if _, err := bundle.Load([]byte(bundletest.Old(config))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
}
