// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

var now = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// authority is a CA that signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string, until time.Time) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{key: key}
	a.cert = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-10 * year), NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a authority) sign(t *testing.T, c, parent *x509.Certificate) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(now.UnixNano())
	if c.NotBefore.IsZero() {
		c.NotBefore = now.Add(-24 * time.Hour)
	}
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// leaf is a certificate for a host, valid for a year until then.
func (a authority) leaf(t *testing.T, host string, until time.Time) *x509.Certificate {
	t.Helper()
	return a.leafOf(t, host, until, year+24*time.Hour)
}

// leafOf is a certificate for a host with this lifetime.
func (a authority) leafOf(t *testing.T, host string, until time.Time, lifetime time.Duration) *x509.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: until.Add(-lifetime), NotAfter: until}, a.cert)
}

func pemOf(certs ...*x509.Certificate) string {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return string(out)
}

const (
	year       = 365 * 24 * time.Hour
	serverHost = "konnectivity-server.kube-system.svc"
)

// world is a healthy cluster, and the CAs that tests need to break it.
type world struct {
	*observe.Snapshot
	t      *testing.T
	ca, fp authority
}

// programs change the program that they return, in place.
func (w *world) find(role check.Role) *observe.Program {
	w.t.Helper()
	for i := range w.Programs.Value {
		if w.Programs.Value[i].Role == role {
			return &w.Programs.Value[i]
		}
	}
	w.t.Fatalf("no %s", role)
	return nil
}

// all calls edit for each program of a role.
func (w *world) all(role check.Role, edit func(*observe.Program)) {
	for i := range w.Programs.Value {
		if w.Programs.Value[i].Role == role {
			edit(&w.Programs.Value[i])
		}
	}
}

func setFlag(p *observe.Program, arg string) { p.Args = append(p.Args[:len(p.Args):len(p.Args)], arg) }

func metric(name string, value float64, labels ...string) observe.Metrics {
	m := &dto.Metric{Counter: &dto.Counter{Value: &value}}
	for i := 0; i+1 < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	return observe.Metrics{name: &dto.MetricFamily{Name: &name, Metric: []*dto.Metric{m}}}
}

func lease(namespace, name, holder string, renewed time.Time) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed}}}
}

// podOf makes a running Pod of a rendered workload's template.
func podOf(role check.Role, name, node, namespace string, template corev1.PodTemplateSpec) observe.Program {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.NodeName = node
	c := &pod.Spec.Containers[0]
	return observe.Program{Program: check.Program{Role: role, Name: "Pod " + namespace + "/" + name, Args: append(append([]string{}, c.Command...), c.Args...), Ready: true},
		Image: c.Image, Node: node, Pod: pod}
}

// healthy is the default bundle in a cluster of two nodes, as package bundle renders it.
func healthy(t *testing.T) *world {
	t.Helper()
	return healthyOf(t, &v1alpha1.Bundle{})
}

// healthyOf is a bundle in a cluster of two nodes.
func healthyOf(t *testing.T, b *v1alpha1.Bundle) *world {
	t.Helper()
	w := &world{t: t, ca: newAuthority(t, "kubernetes", now.Add(5*year)), fp: newAuthority(t, "front-proxy-ca", now.Add(5*year))}
	b = b.Defaulted()
	w.Snapshot = &observe.Snapshot{Taken: now, Context: "test", Host: "https://10.0.0.1:6443", Bundle: b, Names: incluster.NamesOf(b),
		ServerMetrics: map[string]observe.Fact[observe.Metrics]{}, SchedulerMetrics: map[string]observe.Fact[observe.Metrics]{},
		Shown: map[string]observe.Fact[[]*x509.Certificate]{}, Kubelets: map[string]error{"a": nil, "b": nil}, Crashes: map[string]string{}}
	w.objects()
	w.programs()
	w.extensions()
	return w
}

func (w *world) objects() {
	s := w.Snapshot
	s.Reach = observe.Known(observe.Connection{Dated: true, Certificates: []*x509.Certificate{w.ca.leaf(w.t, "kube-apiserver", now.Add(year))}})
	s.Ready = observe.Known("[+]ping ok\n[+]etcd ok\nreadyz check passed\n")
	s.Version = observe.Known(&version.Info{GitVersion: "v1.36.3"})
	s.ClientCert = observe.Known(w.ca.leaf(w.t, "admin", now.Add(year)))
	s.Authentication = observe.Known(map[string]string{"client-ca-file": pemOf(w.ca.cert), "requestheader-client-ca-file": pemOf(w.fp.cert),
		"requestheader-allowed-names": `["front-proxy-client"]`})
	s.ClusterCAs = observe.Known([]*x509.Certificate{w.ca.cert})
	for _, name := range []string{"a", "b"} {
		s.Nodes.Value = append(s.Nodes.Value, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.1", Architecture: "amd64"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
		s.NodeLeases.Value = append(s.NodeLeases.Value, lease(corev1.NamespaceNodeLease, name, name, now.Add(-4*time.Second)))
	}
	s.Leases = observe.Known([]coordinationv1.Lease{
		lease("kube-system", "my-scheduler", "my-scheduler-1_x", now.Add(-time.Second)), lease("kube-system", "kube-scheduler", "cp_y", now.Add(-time.Second)),
	})
	s.FlowSchemas = observe.Known([]flowcontrolv1.FlowSchema{flowSchema("kube-system-service-accounts", "workload-high", 900, "system:serviceaccounts:kube-system"),
		flowSchema("service-accounts", "workload-low", 9000, "system:serviceaccounts")})
	s.Reviews = observe.Known([]observe.Review{
		{Identity: "system:serviceaccount:kube-system:my-scheduler", Role: string(check.RoleScheduler), Right: "create pods/binding", Allowed: true},
		{Identity: "system:konnectivity-server", Role: string(check.RoleServer), Right: observe.ReviewTokens, Allowed: true},
		{Identity: "system:konnectivity-server", Role: string(check.RoleServer), Right: "patch leases.coordination.k8s.io in fairlead-konnectivity", Allowed: true},
		{Identity: "system:serviceaccount:kube-system:konnectivity-agent", Role: string(check.RoleAgent), Right: "watch leases.coordination.k8s.io in fairlead-konnectivity", Allowed: true},
	})
	s.OtherReviews = observe.Known([]observe.Review{
		{Identity: "system:serviceaccount:fairlead-system:fairlead-operator", Role: string(check.RoleOperator), Right: "patch services", Allowed: true},
		{Identity: "system:serviceaccount:kube-system:fairlead-gateway", Role: string(check.RoleGateway), Right: "list pods", Allowed: true},
	})
	s.APIServerMetrics = observe.Known(metric(observe.MetricEgressStart, 100, "protocol", "grpc", "transport", "uds"))
	s.Node = observe.Known(observe.HostFacts{EgressFile: "/etc/kubernetes/konnectivity/egress.yaml",
		Egress:       observe.Known(observe.Egress{Selected: true, Protocol: "GRPC", UDS: w.Bundle.Konnectivity.Transport.UDS.Path}),
		Socket:       observe.Known(observe.Socket{Path: w.Bundle.Konnectivity.Transport.UDS.Path, IsSocket: true, Mode: 0o755, Parent: 0o700}),
		Certificates: observe.Known([]controlplane.Certificate{{Path: "/etc/kubernetes/pki/ca.crt", State: controlplane.CertGood}}),
		Own:          []observe.FileCertificate{{Path: "/etc/kubernetes/pki/front-proxy-client.crt", Leaf: observe.Known(w.fp.leaf(w.t, "front-proxy-client", now.Add(year)))}},
	})
}

func flowSchema(name, level string, precedence int32, group string) flowcontrolv1.FlowSchema {
	return flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level}, MatchingPrecedence: precedence,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:      []flowcontrolv1.Subject{{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: group}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
		}},
	}}
}

// programs are Pods of what the bundle renders, so that rules meet the flags that Fairlead writes.
func (w *world) programs() {
	s := w.Snapshot
	out, err := bundle.Render(s.Bundle)
	if err != nil {
		w.t.Fatal(err)
	}
	api := observe.Program{Program: check.Program{Role: check.RoleAPIServer, Name: "Pod kube-system/kube-apiserver-cp", Ready: true,
		Args: []string{"kube-apiserver", "--egress-selector-config-file=/x", "--kubelet-certificate-authority=/ca"}}}
	s.APIServers = observe.Known(map[string][]string{api.Name: api.Args})
	s.Programs.Value = append(s.Programs.Value, api)
	for _, object := range out.Objects {
		switch o := object.(type) {
		case *appsv1.DaemonSet:
			for _, node := range []string{"a", "b"} {
				s.Programs.Value = append(s.Programs.Value, podOf(check.RoleAgent, "agent-"+node, node, o.Namespace, o.Spec.Template))
			}
			o.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, NumberReady: 2}
			s.DaemonSets.Value = append(s.DaemonSets.Value, *o)
		case *appsv1.Deployment:
			if konnectivity.IsAgent(o.Kind, o.Labels) {
				for _, node := range []string{"a", "b"} {
					s.Programs.Value = append(s.Programs.Value, podOf(check.RoleAgent, "agent-"+node, node, o.Namespace, o.Spec.Template))
				}
				o.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2}
				s.Deployments.Value = append(s.Deployments.Value, *o)
				continue
			}
			s.Programs.Value = append(s.Programs.Value, podOf(check.RoleScheduler, "my-scheduler-1", "a", o.Namespace, o.Spec.Template),
				podOf(check.RoleScheduler, "my-scheduler-2", "b", o.Namespace, o.Spec.Template))
			s.Deployments.Value = append(s.Deployments.Value, *o)
		case *policyv1.PodDisruptionBudget:
			s.PDBs.Value = append(s.PDBs.Value, *o)
		case *corev1.ServiceAccount:
			s.Accounts.Value = append(s.Accounts.Value, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
		}
	}
	for i := range s.Programs.Value {
		s.Programs.Value[i].Pod = s.Programs.Value[i].Pod.DeepCopy() // tests change one at a time
	}
	var static corev1.Pod
	for _, f := range out.HostFiles {
		if path.Base(f.Path) == "konnectivity-server.yaml" {
			if err := yaml.Unmarshal(f.Data, &static); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	server := podOf(check.RoleServer, "konnectivity-server-cp", "cp", static.Namespace, corev1.PodTemplateSpec{ObjectMeta: static.ObjectMeta, Spec: static.Spec})
	s.Programs.Value = append(s.Programs.Value, server)
	s.ServerMetrics[server.Name] = observe.Known(metric(observe.MetricBackends, 2))
	s.Shown[server.Name] = observe.Known([]*x509.Certificate{w.ca.leaf(w.t, serverHost, now.Add(year))})
}

func (w *world) extensions() {
	s := w.Snapshot
	// A Service of its own for each kind of call, so that the loss of one is the fault of one check.
	refs := map[string]*observe.ServiceRef{}
	s.Services = observe.Known(map[types.NamespacedName]observe.ServiceState{})
	for _, name := range []string{"admit", "convert", "hook"} {
		refs[name] = &observe.ServiceRef{Namespace: "shop", Name: name, Port: 443}
		s.Services.Value[refs[name].Key()] = observe.ServiceState{Exists: true, Ports: []int32{443}, Targets: map[int32][]int32{443: {8443}}, Ready: 1, PodLabels: map[string]string{"app": name}}
	}
	s.Validating = observe.Known([]admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "orders.shop.example", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "shop", Name: "admit"}, CABundle: []byte(pemOf(w.ca.cert))},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"shop.example"}, Resources: []string{"orders"}}}},
	}}}})
	s.APIServices = observe.Known([]observe.APIService{{Name: "v1.shop.example", Service: refs["hook"], Available: true, CABundle: []byte(pemOf(w.ca.cert))}})
	s.CRDs = observe.Known([]observe.CRD{{Name: "orders.shop.example", Strategy: "Webhook", Service: refs["convert"], CABundle: []byte(pemOf(w.ca.cert)), Stored: []string{"v1"},
		Versions: []observe.CRDVersion{{Name: "v1", Served: true, Storage: true, Schema: "{a}"}, {Name: "v1beta1", Served: true, Schema: "{b}"}}}})
}
