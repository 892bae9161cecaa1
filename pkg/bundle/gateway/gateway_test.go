// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/socks5"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

func load(t *testing.T, config string) *v1alpha1.Bundle {
	t.Helper()
	b, err := bundle.Load([]byte(bundletest.File(config)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func objects(t *testing.T, config string) []component.Object {
	t.Helper()
	list, err := gateway.Objects(load(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func kinds(list []component.Object) (out []string) {
	for _, o := range list {
		out = append(out, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
	}
	return out
}

// TestObjects: which objects each setting renders; none by default, and no disruption budget for a
// single replica, whose node could not be drained.
func TestObjects(t *testing.T) {
	const name = " fairlead-gateway"
	rights := []string{"ClusterRole" + name, "ClusterRoleBinding" + name}
	for config, want := range map[string][]string{
		"": nil,
		"gateway: {enabled: true}": slices.Concat([]string{"ServiceAccount" + name}, rights,
			[]string{"Service" + name, "NetworkPolicy" + name, "PodDisruptionBudget" + name, "Deployment" + name}),
		"gateway: {enabled: true, replicas: 1, networkPolicy: false, rules: {allow: [{namespaces: [a]}]}}": slices.Concat([]string{"ServiceAccount" + name}, rights,
			[]string{"ConfigMap fairlead-gateway-rules", "Service" + name, "Deployment" + name}),
		"gateway: {enabled: true, form: StaticPod}": rights,
	} {
		if diff := cmp.Diff(want, kinds(objects(t, config))); diff != "" {
			t.Errorf("%q: -want +got\n%s", config, diff)
		}
	}
}

// TestRights: the gateway may ask and look, and change nothing: every verb but the reviews' create
// reads, and neither Secrets nor port-forwards are among the resources.
func TestRights(t *testing.T) {
	role := objects(t, "gateway: {enabled: true}")[1].(*rbacv1.ClusterRole)
	var got []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			got = append(got, resource+": "+strings.Join(rule.Verbs, " "))
		}
	}
	slices.Sort(got)
	want := []string{"endpointslices: list", "nodes: list", "pods: list", "services: get list", "subjectaccessreviews: create", "tokenreviews: create"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestDeployment: the Pod mounts the certificate and a token of its own, and the proxy demands TLS,
// tokens of its audience and access reviews.
func TestDeployment(t *testing.T) {
	list := objects(t, "gateway: {enabled: true, clientCertificates: true, certificateSecret: mine, allow: [192.0.2.0/24, '*.example.org:443'], extraArgs: [{name: max-connections, value: '9'}]}")
	d := list[len(list)-1].(*appsv1.Deployment)
	spec := d.Spec.Template.Spec
	want := []string{
		"--listen=:1080", "--via=network", "--tls-cert=/var/run/secrets/fairlead-gateway/tls/tls.crt", "--tls-key=/var/run/secrets/fairlead-gateway/tls/tls.key",
		"--metrics-address=:1081", "--shutdown-delay-duration=3s", "--token-review=true", "--token-audience=fairlead-gateway", "--access-review=true",
		"--client-ca=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "--allow=192.0.2.0/24,*.example.org:443", "--max-connections=9",
	}
	if diff := cmp.Diff(want, spec.Containers[0].Args); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/fairlead", "socks5"}, spec.Containers[0].Command); diff != "" {
		t.Error(diff)
	}
	if v := spec.Volumes[0]; v.Secret == nil || v.Secret.SecretName != "mine" {
		t.Errorf("volume of the certificate: %+v", v)
	}
	if ptr.Deref(spec.AutomountServiceAccountToken, true) || ptr.Deref(d.Spec.Replicas, 0) != 2 {
		t.Errorf("automount %v, %d replicas", spec.AutomountServiceAccountToken, ptr.Deref(d.Spec.Replicas, 0))
	}
}

// TestLimitedAsAgentsAre: where a list limits what the bundle's agents reach, it limits the gateway, too, next to
// what the bundle allows the gateway itself. Without such a list nothing limits it.
func TestLimitedAsAgentsAre(t *testing.T) {
	agents := func(value string) string {
		return "konnectivity: {agent: {extraArgs: [{name: allow-destinations, value: '" + value + "'}]}}\n"
	}
	for _, c := range []struct{ config, want string }{
		{"gateway: {enabled: true, allow: [192.0.2.0/24]}", ""},
		{agents("") + "gateway: {enabled: true, allow: [192.0.2.0/24]}", ""},
		{agents("10.0.0.0/8, db.example.org:5432") + "gateway: {enabled: true}", "10.0.0.0/8,db.example.org:5432"},
		{agents("10.0.0.0/8") + "gateway: {enabled: true, form: StaticPod, allow: [192.0.2.0/24, 10.0.0.0/8]}", "10.0.0.0/8,192.0.2.0/24"},
	} {
		var got string
		for _, f := range gateway.Flags(load(t, c.config)) {
			if value, ok := strings.CutPrefix(f.String(), "--only="); ok {
				got = value
			}
		}
		if got != c.want {
			t.Errorf("%s: --only=%s, want %s", c.config, got, c.want)
		}
		if _, err := destinations.ParseRules(got); err != nil {
			t.Errorf("%s: the program refuses %q: %v", c.config, got, err)
		}
	}
}

// TestDeniesWhatAgentsDeny: the gateway denies what the bundle's agents deny, in addition to its own rules,
// without those that it always denies, and its program reads the list.
func TestDeniesWhatAgentsDeny(t *testing.T) {
	agents := func(value string) string {
		return "konnectivity: {agent: {extraArgs: [{name: deny-destinations, value: '" + value + "'}]}}\n"
	}
	for _, c := range []struct{ config, want string }{
		{"gateway: {enabled: true}", ""},
		{"gateway: {enabled: true, deny: [':22']}", ":22"},
		{agents("10.9.0.0/16, db.example.org:5432") + "gateway: {enabled: true}", "10.9.0.0/16,db.example.org:5432"},
		{agents("10.9.0.0/16,:22") + "gateway: {enabled: true, form: StaticPod, deny: [':22', 192.0.2.1]}", ":22,192.0.2.1,10.9.0.0/16"},
		{agents(destinations.DefaultDeny+",10.9.0.0/16") + "gateway: {enabled: true}", "10.9.0.0/16"},
		{agents("") + "gateway: {enabled: true}", ""},
	} {
		var got string
		for _, f := range gateway.Flags(load(t, c.config)) {
			if value, ok := strings.CutPrefix(f.String(), "--deny="); ok {
				got = value
			}
		}
		if got != c.want {
			t.Errorf("%s: --deny=%s, want %s", c.config, got, c.want)
		}
		if _, err := destinations.ParseRules(got); err != nil {
			t.Errorf("%s: the program refuses %q: %v", c.config, got, err)
		}
	}
}

// TestStaticPod: the static Pod uses its node's Konnectivity server, by the protocol and transport
// that the bundle gives to kube-apiserver.
func TestStaticPod(t *testing.T) {
	const tcp = `
konnectivity: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://127.0.0.1:8131', clientCert: /etc/kubernetes/pki/k.crt, clientKey: /etc/kubernetes/pki/k.key,
  clientCA: /etc/kubernetes/pki/kca.crt, caBundle: /etc/kubernetes/pki/ca.crt, tlsServerName: kubernetes}}}`
	for config, want := range map[string][]string{
		"": {"--server-mode=grpc", "--server-socket=/etc/kubernetes/konnectivity-server/konnectivity-server.socket"},
		tcp: {"--server-mode=http-connect", "--server-address=127.0.0.1:8131", "--server-cert=/etc/kubernetes/pki/k.crt", "--server-key=/etc/kubernetes/pki/k.key",
			"--server-ca=/etc/kubernetes/pki/ca.crt", "--server-name=kubernetes"},
	} {
		b := load(t, "gateway: {enabled: true, form: StaticPod, rules: {}}"+config)
		pod, err := component.StaticPod(gateway.Component(b))
		if err != nil {
			t.Fatal(err)
		}
		args := pod.Spec.Containers[0].Args
		want = append(want, "--via=direct", "--kubeconfig=/etc/kubernetes/fairlead-gateway.conf", "--tls-cert=/etc/kubernetes/pki/fairlead-gateway.crt",
			"--metrics-address=127.0.0.1:1081", "--rules=/etc/kubernetes/fairlead-gateway/rules.yaml", "--access-review=true")
		for _, arg := range want {
			if !slices.Contains(args, arg) {
				t.Errorf("%q lacks %s", args, arg)
			}
		}
		out, err := bundle.Render(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.GatewayFiles) != 2 || out.GatewayFiles[0].Path != gateway.RulesPath || out.GatewayFiles[1].Path != "/etc/kubernetes/manifests/fairlead-gateway.yaml" {
			t.Errorf("files %+v", out.GatewayFiles)
		}
	}
}

// TestRuleFile: the program reads every field of the rules that the bundle renders.
func TestRuleFile(t *testing.T) {
	b := load(t, `
gateway:
  enabled: true
  rules:
    allow: [{name: web, users: [u], groups: [g], kinds: [Service, Pod], namespaces: ["team-*"], names: [name], ports: ["80", 8000-8100], addresses: [192.0.2.0/24]}]
    deny: [{name: no databases, names: ["*-db"]}]
`)
	data, err := gateway.RuleFile(b)
	if err != nil {
		t.Fatal(err)
	}
	list, err := rules.Parse(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if len(list.Allow) != 1 || len(list.Deny) != 1 {
		t.Fatalf("%+v", list)
	}
	r, want := list.Allow[0], b.Gateway.Rules.Allow[0]
	got := v1alpha1.GatewayRule{Name: r.Name, Users: r.Users, Groups: r.Groups, Namespaces: r.Namespaces, Names: r.Names, Ports: r.Ports, Addresses: r.Addresses}
	for _, k := range r.Kinds {
		got.Kinds = append(got.Kinds, string(k))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-bundle +program:\n%s", diff)
	}
}

// TestCertificate: the certificate is good for the Service's names and for the bundle's hosts, and
// the Secret holds what the Pod mounts.
func TestCertificate(t *testing.T) {
	b := load(t, "pki: {algorithm: ECDSA-P256}\nnamespace: own\ngateway: {enabled: true, hosts: [gw.example.org, 192.0.2.7]}")
	now := time.Now()
	ca, err := pki.NewCA(pki.FromBundle(b), "test", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.FromBundle(b), gateway.CertificateRequest(b), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"fairlead-gateway.own.svc", "fairlead-gateway.own", "gw.example.org", "192.0.2.7", gateway.ServerName(b)} {
		if err := pair.Cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	secret, err := gateway.Secret(b, "name", pair, ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ParseKeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil || secret.Type != corev1.SecretTypeTLS || secret.Namespace != "own" {
		t.Errorf("%s %s: %v", secret.Type, secret.Namespace, err)
	}
}

// TestRefused: each mistake is refused with the field and what to do.
func TestRefused(t *testing.T) {
	for config, want := range map[string]string{
		"form: DaemonSet":           `gateway.form: Unsupported value`,
		"replicas: 0":               "gateway.replicas: Invalid value: 0",
		"port: 80":                  "gateway.port: Invalid value: 80",
		"port: 1081":                "gateway.healthPort: Invalid value: 1081: is also the port of gateway.port",
		"image: 'a b'":              "gateway.image",
		"hosts: ['https://x']":      "gateway.hosts[0]",
		"tokenAudiences: []":        "gateway.tokenAudiences: Required value",
		"tokenAudiences: ['a,b']":   "gateway.tokenAudiences[0]",
		"serviceType: ExternalName": "gateway.serviceType: Unsupported value",
		"kubeconfig: /etc/x.conf":   "gateway.kubeconfig: Invalid value: \"/etc/x.conf\": is for form StaticPod",
		"certificateSecret: mine, hosts: [a.example]":                           "gateway.hosts: Forbidden",
		"form: StaticPod, replicas: 1":                                          "gateway.replicas: Forbidden",
		"form: StaticPod, port: 8132":                                           "gateway.port: Invalid value: 8132: is also the port of konnectivity.serverAddresses[0].port",
		"form: StaticPod, port: 6443":                                           "is the port of kube-apiserver",
		"form: StaticPod, certFile: /x/a.crt, keyFile: /x/a.key":                "gateway.certFile",
		"form: StaticPod, kubeconfig: /etc/kubernetes/konnectivity-server.conf": "is another component's",
		"allow: ['10.0.0.0/99']":                                                "gateway.allow[0]",
		"deny: ['a,b']":                                                         "gateway.deny[0]",
		"rules: {allow: [{kinds: [Deployment]}]}":                               "gateway.rules.allow[0].kinds[0]: Unsupported value",
		"rules: {deny: [{ports: ['0']}]}":                                       "gateway.rules.deny[0].ports[0]",
		"rules: {allow: [{addresses: ['10.0.0.1']}]}":                           "must be a CIDR",
		"rules: {allow: [{users: ['']}]}":                                       "gateway.rules.allow[0].users[0]",
		"rules: {deny: [{kinds: [Node], namespaces: [prod]}]}":                  `gateway.rules.deny[0].namespaces: Invalid value: "prod": matches nothing`,
		"extraArgs: [{name: insecure-no-auth, value: 'true'}]":                  "clients on the network must prove who they are",
		"extraArgs: [{name: via, value: direct}]":                               "set gateway.form instead",
		"unknown: 1": "unknown",
	} {
		_, err := bundle.Load([]byte(bundletest.File("gateway: {enabled: true, " + config + "}")))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	for _, rule := range []string{"{kinds: [Node], namespaces: ['*']}", "{kinds: [Node, Pod], namespaces: [prod]}", "{kinds: [External], names: ['*.example.org']}"} {
		if _, err := bundle.Load([]byte(bundletest.File("gateway: {enabled: true, rules: {deny: [" + rule + "]}}"))); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
	for config, want := range map[string]string{
		"scheduler: {name: fairlead-gateway}\ngateway: {enabled: true}":             "scheduler.name",
		"konnectivity: {enabled: false}\ngateway: {enabled: true, form: StaticPod}": "use form Deployment",
	} {
		_, err := bundle.Load([]byte(bundletest.File(config)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestDrains: open connections have the time that the bundle gives them before the kubelet kills the program, in both forms.
func TestDrains(t *testing.T) {
	for args, want := range map[string]int64{
		"": 20, ", extraArgs: [{name: drain-timeout, value: 5m}]": 310, ", extraArgs: [{name: drain-timeout, value: 1500ms}]": 12,
		", extraArgs: [{name: drain-timeout, value: 0s}]": 10,
	} {
		for _, form := range []string{"Deployment", "StaticPod"} {
			b := load(t, "gateway: {enabled: true, form: "+form+args+"}")
			want := want
			if form == "Deployment" {
				want += 3 // the delay in which it accepts connections
			}
			if got := ptr.Deref(gateway.Component(b).TerminationGraceSeconds, 30); got != want {
				t.Errorf("%s%s: %d s until the kubelet kills it, want %d", form, args, got, want)
			}
		}
	}
	if socks5.NewOptions(genericiooptions.IOStreams{}).DrainTimeout != 10*time.Second {
		t.Error("the program has another default")
	}
}
