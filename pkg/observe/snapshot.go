// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"crypto/x509"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Fact is something read from the cluster, or why it could not be read.
type Fact[T any] struct {
	Value T
	Err   error
	// Read is this machine's time at the end of the reading; zero means Snapshot.Taken.
	Read time.Time
}

// Known makes a Fact of a value.
func Known[T any](v T) Fact[T] { return Fact[T]{Value: v} }

// Get returns both parts.
func (f Fact[T]) Get() (T, error) { return f.Value, f.Err }

// ReadAt is the API server's time at which a Fact was read. Ages are those at that time: other sources may have taken much longer.
func ReadAt[T any](s *Snapshot, f Fact[T]) time.Time {
	read := f.Read
	if read.IsZero() {
		read = s.Taken
	}
	return read.Add(-s.Reach.Value.Skew)
}

// Snapshot is all that was read at one time.
type Snapshot struct {
	// Taken is this machine's time when all was read.
	Taken time.Time
	// Context is the kubeconfig's, Host the API server's URL.
	Context, Host string
	// Bundle is defaulted; its names say which Deployment is the second scheduler.
	Bundle *v1alpha1.Bundle
	Names  incluster.Names

	// Reach says why the API server does not answer; nothing else of the cluster is known then. With an error, its value is what the API server
	// shows without credentials, not verified, and empty if it does not answer at all.
	Reach Fact[Connection]
	// Ready is the answer of /readyz.
	Ready   Fact[string]
	Version Fact[*version.Info]
	// Proxy is the proxy that this machine's environment sets for the API server, "" for none.
	Proxy Fact[string]
	// ClientCert is the certificate of the kubeconfig's user; nil if it has none.
	ClientCert Fact[*x509.Certificate]
	// Rights are what this user may do, Denied only what it may not.
	Denied Fact[[]string]

	Nodes      Fact[[]corev1.Node]
	NodeLeases Fact[[]coordinationv1.Lease]
	Pods       Fact[[]corev1.Pod]
	Pending    Fact[[]corev1.Pod]
	// Scheduled counts Pods by scheduler.
	Scheduled   Fact[Scheduled]
	Deployments Fact[[]appsv1.Deployment]
	DaemonSets  Fact[[]appsv1.DaemonSet]
	// Refusals are events of Pods that the API server did not let controllers create.
	Refusals    Fact[[]corev1.Event]
	Leases      Fact[[]coordinationv1.Lease]
	PDBs        Fact[[]policyv1.PodDisruptionBudget]
	Policies    Fact[[]networkingv1.NetworkPolicy]
	CSRs        Fact[[]certificatesv1.CertificateSigningRequest]
	FlowSchemas Fact[[]flowcontrolv1.FlowSchema]
	// Namespaces are the labels of the programs' namespaces, by name.
	Namespaces Fact[map[string]map[string]string]
	// Accounts are the namespaces and names of the ServiceAccounts in namespaces of agents and schedulers.
	Accounts Fact[[]types.NamespacedName]
	// Authentication is ConfigMap extension-apiserver-authentication.
	Authentication Fact[map[string]string]
	// ClusterCAs are those that Pods trust.
	ClusterCAs Fact[[]*x509.Certificate]
	// Configurations are those of schedulers in ConfigMaps.
	Configurations Fact[[]Configuration]
	Mutating       Fact[[]admissionregistrationv1.MutatingWebhookConfiguration]
	Validating     Fact[[]admissionregistrationv1.ValidatingWebhookConfiguration]
	APIServices    Fact[[]APIService]
	CRDs           Fact[[]CRD]

	// Programs are the API servers, tunnel programs and schedulers.
	Programs Fact[[]Program]
	// APIServers are the arguments of kube-apiservers by name.
	APIServers Fact[map[string][]string]
	// Services are those that the API server calls, with what is behind them.
	Services Fact[map[types.NamespacedName]ServiceState]
	// Bound are names of schedulers that have bound a Pod.
	Bound Fact[map[string]int]

	// TunnelState is what the tunnel's extension API server shows.
	TunnelState Fact[TunnelState]

	APIServerMetrics Fact[Metrics]
	ServerMetrics    map[string]Fact[Metrics]
	AgentMetrics     map[string]Fact[Metrics]
	SchedulerMetrics map[string]Fact[Metrics]
	// Shown are the certificates that servers show to agents.
	Shown map[string]Fact[[]*x509.Certificate]
	// Kubelets are the answers of kubelets to the API server, by node.
	Kubelets map[string]error
	// Unasked are ready nodes whose kubelets were not asked: those beyond MaxKubelets, and those for which there was no time.
	Unasked []string
	// Crashes are the last words of containers that do not start, or of another with the same image and architecture, by Program.Key.
	Crashes map[string]string
	// Reviews are rights of the identities of schedulers, servers and agents, OtherReviews of those of the operator, the tunnel's API server and
	// the gateway.
	Reviews, OtherReviews Fact[[]Review]

	// Node is what the files of this control plane node say.
	Node Fact[HostFacts]
	// Preflight and what follows are read before an installation only.
	Preflight Fact[[]install.Finding]
	Blocked   Fact[[]install.Problem]
	Missing   Fact[[]string]
}

// Connection is what a handshake with the API server shows.
type Connection struct {
	Certificates []*x509.Certificate
	// Skew is how much this machine's clock is ahead; its precision is a second and the round trip. It is known if the answer was Dated.
	Skew  time.Duration
	Dated bool
	// Trip is the time of the request.
	Trip time.Duration
}

// Scheduled counts the Pods that have not ended.
type Scheduled struct {
	// Pods are their numbers by the scheduler that they name.
	Pods map[string]int
	// More means that there are more Pods than were read.
	More bool
}

// Configuration is that of a scheduler, in a ConfigMap.
type Configuration struct {
	ConfigMap types.NamespacedName
	Key       string
	Config    schedulerv1.KubeSchedulerConfiguration
	// Text is as stored, Err why it is none.
	Text string
	Err  error
}

// Where names the place for people.
func (c Configuration) Where() string { return "ConfigMap " + c.ConfigMap.String() + ", key " + c.Key }

// APIService is the part of one that matters here.
type APIService struct {
	Name      string
	Service   *ServiceRef
	CABundle  []byte
	Insecure  bool
	Available bool
	// Reason and Message say why it is available or not; Reason is empty if kube-apiserver has not checked it.
	Reason, Message string
}

// CRD is the part of a CustomResourceDefinition that matters here.
type CRD struct {
	Name     string
	Versions []CRDVersion
	// Stored are the versions in which etcd may hold objects.
	Stored []string
	// Strategy is None or Webhook; Service and the rest belong to Webhook.
	Strategy string
	Service  *ServiceRef
	URL      string
	CABundle []byte
}

// CRDVersion is one version of it.
type CRDVersion struct {
	Name            string
	Served, Storage bool
	// Schema identifies the schema; schemas that differ in nothing but documentation are equal text.
	Schema string
}

// ServiceRef is how webhooks and APIServices name a Service.
type ServiceRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      int32  `json:"port"`
}

// Key returns the name without the port.
func (r ServiceRef) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// ServiceState is a Service and what is behind it.
type ServiceState struct {
	Exists bool
	Ports  []int32
	// Targets are the ports of Pods behind each port, PodPorts the named ports of one Pod.
	Targets  map[int32][]int32
	PodPorts map[string]int32
	// Ready is the number of ready addresses.
	Ready int
	// PodLabels are those of one Pod behind it, in whose namespace NetworkPolicies apply.
	PodLabels map[string]string
	// External is set for type ExternalName.
	External bool
}

// Review is the answer to whether an identity has a right that it needs.
type Review struct {
	// Identity is a user name, Role what it is for, Right what it needs.
	Identity, Role, Right string
	Allowed               bool
	// Assumed means that the program's kubeconfig, which cannot be read here, may name another identity.
	Assumed bool
}

// HostFacts are what files of a control plane node say.
type HostFacts struct {
	// EgressFile is the one that kube-apiserver's flag names, on this node; Egress is its content.
	EgressFile string
	Egress     Fact[Egress]
	// Socket is the Unix socket between kube-apiserver and server, if there is one.
	Socket Fact[Socket]
	// Certificates are those that the bundle uses on this node.
	Certificates Fact[[]controlplane.Certificate]
	// Local means a local cluster's machine, whose user owns everything.
	Local bool
	// Own are the certificates of this node's control plane, its kubelet and its administrators.
	Own []FileCertificate
}

// FileCertificate is the first certificate of a file.
type FileCertificate struct {
	Path string
	// Use says between whom it is shown, Renewal how to renew it.
	Use, Renewal string
	// Rotated means that kubelet replaces it, at the latest when a tenth of its lifetime is left.
	Rotated bool
	Leaf    Fact[*x509.Certificate]
}

// Egress is the selection for traffic to nodes.
type Egress struct {
	// Selected is false if the file has no selection of that name.
	Selected bool
	// Protocol is Direct, GRPC or HTTPConnect; UDS or URL is where it leads. Socket is where UDS is on this node: it names a path in kube-apiserver's
	// container.
	Protocol, UDS, URL, Socket string
}

// Socket is a Unix socket on this machine.
type Socket struct {
	Path  string
	Mode  uint32
	Owner uint32
	Group uint32
	// IsSocket is false for a file of another type, Parent the mode of the directory.
	IsSocket bool
	Parent   uint32
}
