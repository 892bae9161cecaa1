// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// New returns the default bundle.
func New() *Bundle {
	b := &Bundle{}
	Default(b)
	return b
}

// Defaulted returns a defaulted copy of b, which stays as it is; the default
// bundle for nil. Everything that renders a bundle starts with it, so that one
// made in Go need not name more than what differs from the defaults.
func (b *Bundle) Defaulted() *Bundle {
	if b == nil {
		return New()
	}
	out := b.DeepCopy()
	Default(out)
	return out
}

// Default fills every field of b that is unset. It is idempotent and never
// changes a field that is set.
func Default(b *Bundle) {
	set(&b.Namespace, DefaultNamespace)
	defaultControlPlane(&b.ControlPlane)
	defaultPKI(&b.PKI)
	defaultAggregation(&b.Aggregation)
	defaultScheduler(&b.Scheduler, b.Namespace)
	defaultKonnectivity(&b.Konnectivity, b)
	defaultGateway(&b.Gateway, b.ControlPlane.PKIDir)
	defaultTunnelAPI(&b.TunnelAPI)
}

func defaultControlPlane(c *ControlPlane) {
	set(&c.PKIDir, DefaultPKIDir)
	set(&c.ManifestsDir, DefaultManifestsDir)
	set(&c.EgressSelectorFile, DefaultEgressSelectorFile)
}

func defaultPKI(p *PKI) {
	set(&p.Algorithm, KeyRSA2048)
	setPtr(&p.Validity, metav1.Duration{Duration: 9000 * time.Hour})
	setPtr(&p.CAValidity, metav1.Duration{Duration: 87600 * time.Hour})
}

func defaultAggregation(a *Aggregation) {
	if a.AllowedNames == nil {
		a.AllowedNames = []string{FrontProxyClient}
	}
	setPtr(&a.EnableAggregatorRouting, false)
}

func defaultScheduler(s *Scheduler, namespace string) {
	setPtr(&s.Enabled, true)
	set(&s.Name, DefaultSchedulerName)
	set(&s.Image, DefaultSchedulerImage)
	defaultLeaderElection(&s.LeaderElection, s.Name, namespace)
	defaultSchedulerForm(s)
	setPtr(&s.ClientConnection.QPS, 500)
	setPtr(&s.ClientConnection.Burst, 1000)
	set(&s.ClientConnection.ContentType, runtime.ContentTypeProtobuf)
	setPtr(&s.Parallelism, 16)
	setPtr(&s.PercentageOfNodesToScore, 0)
	defaultProfile(s)
	defaultBuiltInProfiles(&s.BuiltInProfiles)
	for i := range s.MoreBuiltInProfiles {
		defaultBuiltInProfiles(&s.MoreBuiltInProfiles[i])
	}
	defaultPlugins(&s.Plugins)
	for i := range s.Assignments {
		set(&s.Assignments[i].SchedulerName, firstProfile(s))
	}
	setPtr(&s.DelayCacheUntilActive, false)
	set(&s.SecurePort, DefaultSecurePort)
	if s.Resources == nil {
		s.Resources = requests("100m", "128Mi")
	}
	setPtr(&s.Tolerations, Tolerations{
		criticalAddonsOnly(),
		{Key: LabelControlPlane, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	})
}

func defaultSchedulerForm(s *Scheduler) {
	set(&s.Form, FormDeployment)
	switch {
	case s.Form == FormStaticPod:
		set(&s.Kubeconfig, "/etc/kubernetes/"+s.Name+".conf")
	case *s.LeaderElection.LeaderElect:
		setPtr(&s.Replicas, 2)
	default:
		setPtr(&s.Replicas, 1)
	}
}

// defaultProfile gives a scheduler without profiles the standard one, and one whose image
// may not have Fairlead's plugins a profile that every kube-scheduler has.
func defaultProfile(s *Scheduler) {
	if s.Profiles != nil || len(s.BuiltInProfiles.names(nil)) > 0 {
		return
	}
	if HasPlugins(s.Image) {
		s.BuiltInProfiles.Standard = &StandardProfile{}
		return
	}
	s.Profiles = []schedulerv1.KubeSchedulerProfile{{SchedulerName: ptr.To(DefaultSchedulerName)}}
}

// firstProfile is the name of the first profile, "" if there is none.
func firstProfile(s *Scheduler) string {
	if names := s.ProfileNames(); len(names) > 0 {
		return names[0]
	}
	return ""
}

func defaultBuiltInProfiles(p *BuiltInProfiles) {
	if p.Standard != nil {
		set(&p.Standard.SchedulerName, DefaultSchedulerName)
	}
	if p.Binpack != nil {
		set(&p.Binpack.SchedulerName, DefaultBinpackProfile)
		setPtr(&p.Binpack.PercentageOfNodesToScore, 100)
		setPtr(&p.Binpack.Weight, 5)
		if p.Binpack.Resources == nil {
			p.Binpack.Resources = []schedulerv1.ResourceSpec{
				{Name: string(corev1.ResourceCPU), Weight: 1}, {Name: string(corev1.ResourceMemory), Weight: 1},
			}
		}
	}
	if p.Spread != nil {
		set(&p.Spread.SchedulerName, DefaultSpreadProfile)
		setPtr(&p.Spread.PercentageOfNodesToScore, 10)
		setPtr(&p.Spread.MaxSkew, 1)
		setPtr(&p.Spread.Weight, 5)
	}
	if p.Batch != nil {
		set(&p.Batch.SchedulerName, DefaultBatchProfile)
		setPtr(&p.Batch.PercentageOfNodesToScore, 0)
		set(&p.Batch.Placement, BatchPack)
	}
}

func defaultPlugins(p *SchedulerPlugins) {
	setPtr(&p.TunnelReach.Enabled, false)
	p.TunnelReach.Default()
	setPtr(&p.PolitePreemption.Enabled, true)
	p.PolitePreemption.Default()
	setPtr(&p.ForeignNominations.Enabled, true)
	p.ForeignNominations.Default()
	setPtr(&p.FailoverBarrier.Enabled, true)
	p.FailoverBarrier.Default()
}

func defaultLeaderElection(l *LeaderElection, name, namespace string) {
	setPtr(&l.LeaderElect, true)
	set(&l.LeaseName, name)
	set(&l.LeaseNamespace, namespace)
	setPtr(&l.LeaseDuration, metav1.Duration{Duration: 12 * time.Second})
	setPtr(&l.RenewDeadline, metav1.Duration{Duration: 8 * time.Second})
	setPtr(&l.RetryPeriod, metav1.Duration{Duration: time.Second})
}

func defaultKonnectivity(k *Konnectivity, b *Bundle) {
	setPtr(&k.Enabled, true)
	set(&k.ProxyProtocol, ProxyGRPC)
	if k.Transport.UDS == nil && k.Transport.TCP == nil {
		k.Transport.UDS = &UDSTransport{}
	}
	if k.Transport.UDS != nil {
		set(&k.Transport.UDS.Path, DefaultSocket)
	}
	set(&k.ServerHost, ServiceHost(b.Namespace))
	set(&k.AgentPort, DefaultAgentPort)
	set(&k.AuthenticationAudience, DefaultAuthenticationAudience)
	set(&k.AgentServiceAccount, DefaultAgentServiceAccount)
	setPtr(&k.LeaseCounting, false)
	set(&k.LeaseNamespace, DefaultLeaseNamespace)
	defaultServer(&k.Server, b.ControlPlane.PKIDir)
	defaultAgent(&k.Agent)
	if tcp := k.Transport.TCP; tcp != nil && len(tcp.ClientNames) == 0 {
		tcp.ClientNames = []string{DefaultTCPClientName}
	}
	if tcp := k.Transport.TCP; tcp != nil && tcp.ServerCert == "" && tcp.ServerKey == "" {
		tcp.ServerCert, tcp.ServerKey = k.Server.CertFile, k.Server.KeyFile
	}
}

func defaultServer(s *KonnectivityServer, pkiDir string) {
	set(&s.Form, FormStaticPod)
	set(&s.Image, DefaultServerImage)
	set(&s.AdminPort, DefaultAdminPort)
	set(&s.HealthPort, DefaultHealthPort)
	set(&s.HealthBindAddress, DefaultHealthBindAddress)
	setPtr(&s.Count, 1)
	if s.CertFile == "" && s.KeyFile == "" {
		s.CertFile, s.KeyFile = path.Join(pkiDir, "apiserver.crt"), path.Join(pkiDir, "apiserver.key")
	}
	set(&s.Kubeconfig, DefaultServerKubeconfig)
	setPtr(&s.DrainTimeout, metav1.Duration{Duration: 5 * time.Second})
	if s.Resources == nil {
		s.Resources = tunnelResources(s.ExtraArgs)
	}
}

func defaultAgent(a *KonnectivityAgent) {
	set(&a.Form, FormDaemonSet)
	setPtr(&a.Replicas, 2)
	set(&a.Image, DefaultAgentImage)
	set(&a.AdminPort, DefaultAdminPort)
	set(&a.HealthPort, DefaultHealthPort)
	setPtr(&a.HostNetwork, false)
	setPtr(&a.NetworkPolicy, true)
	setPtr(&a.Tolerations, Tolerations{criticalAddonsOnly()})
	if a.Resources == nil {
		a.Resources = tunnelResources(a.ExtraArgs)
	}
}

// defaultGateway leaves the fields of the other form empty, so that validation can tell when one is set.
func defaultGateway(g *Gateway, pkiDir string) {
	setPtr(&g.Enabled, false)
	set(&g.Form, FormDeployment)
	set(&g.Image, DefaultGatewayImage)
	set(&g.Port, DefaultGatewayPort)
	set(&g.HealthPort, DefaultGatewayHealthPort)
	if g.TokenAudiences == nil {
		g.TokenAudiences = []string{DefaultGatewayAudience}
	}
	setPtr(&g.ClientCertificates, false)
	if g.Resources == nil {
		g.Resources = requests("50m", "64Mi")
		g.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	}
	if g.Form == FormStaticPod {
		if g.CertFile == "" && g.KeyFile == "" {
			g.CertFile, g.KeyFile = path.Join(pkiDir, GatewayName+".crt"), path.Join(pkiDir, GatewayName+".key")
		}
		set(&g.Kubeconfig, "/etc/kubernetes/"+GatewayName+".conf")
		return
	}
	setPtr(&g.Replicas, 2)
	set(&g.ServiceType, corev1.ServiceTypeClusterIP)
	set(&g.CertificateSecret, DefaultGatewaySecret)
	setPtr(&g.NetworkPolicy, true)
}

func defaultTunnelAPI(a *TunnelAPI) {
	setPtr(&a.Enabled, false)
	setPtr(&a.Connect, false)
	setPtr(&a.Replicas, 2)
	set(&a.Image, DefaultTunnelAPIImage)
	set(&a.Port, DefaultTunnelAPIPort)
	set(&a.StatePort, DefaultTunnelAPIStatePort)
	set(&a.CertificateSecret, DefaultTunnelAPISecret)
	if a.Resources == nil {
		a.Resources = requests("50m", "64Mi")
		a.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	}
}

// LabelControlPlane is the label, and the key of the taint, of control plane
// nodes.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// ServiceHost is the default ServerHost: the name of the headless Service in
// front of the Konnectivity servers.
func ServiceHost(namespace string) string {
	return DefaultServerService + "." + namespace + ".svc"
}

func criticalAddonsOnly() corev1.Toleration {
	return corev1.Toleration{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}
}

func requests(cpu, memory string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// set gives a field its default if it has its type's zero value.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPtr does the same for optional fields, whose zero value is legal.
func setPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
