// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiservice"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

const (
	// ServerName is the name of the server's Pods and the value of their label.
	ServerName = "konnectivity-server"
	// ServerBinary is the base name of our own server program.
	ServerBinary = "konnectivity-server"
	// ServerUser is the user of the server's kubeconfig.
	ServerUser = "system:konnectivity-server"

	// PortServer names the port that kube-apiserver dials, with TCP only.
	PortServer = "serverport"
	// PortAgent names the server's port that agents dial.
	PortAgent = "agentport"
	// PortAdmin names the port of profiles, on loopback.
	PortAdmin = "adminport"
	// PortHealth names the port of health and metrics.
	PortHealth = "healthport"

	// PortState names the port at which the server shows its state, if the bundle has
	// the tunnel's API server.
	PortState = "stateport"

	// serverExit is the time, in seconds, that the server has after draining until it is
	// killed.
	serverExit = 10

	appLabel = "k8s-app"
)

// serverLabels select the servers. The static Pod in the Kubernetes documentation
// has no labels, but the headless Service selects servers by them, and the servers'
// Leases carry them.
func serverLabels() map[string]string { return map[string]string{appLabel: ServerName} }

// Server describes the proxy server.
func Server(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	s := &b.Konnectivity.Server
	probe := component.Probe{Port: PortHealth, Host: HealthHost(s.HealthBindAddress)}
	drain := ptr.Deref(s.DrainTimeout, metav1.Duration{}).Duration
	c := component.Component{
		Name: ServerName, Namespace: b.Namespace, Binary: ServerBinary,
		Labels: serverLabels(), Selector: serverLabels(), PodLabels: serverLabels(),
		ContainerName: "konnectivity-server-container", Image: s.Image,
		Command:   []string{"/proxy-server"},
		Flags:     ServerFlags(b),
		Ports:     serverPorts(b),
		Env:       slices.Concat([]corev1.EnvVar{{Name: settings.DrainTimeout, Value: drain.String()}}, claimsEnv(b), frontendEnv(&b.Konnectivity), stateEnv(b)),
		Liveness:  &component.Probe{Port: probe.Port, Host: probe.Host, Path: "/healthz", Delay: 30, Timeout: 60},
		Readiness: component.Readiness(probe),
		Volumes:   serverVolumes(b),
		// The server runs as root to read the API server's key and the kubeconfig, which
		// belong to root with mode 0600, and to write to the socket directory, which
		// belongs to root. It needs no capability for that.
		PodSecurity: component.RootPod(), Security: component.RestrictedContainer(),
		HostNetwork:             true,
		PriorityClass:           "system-cluster-critical",
		TerminationGraceSeconds: ptr.To(int64(drain.Seconds()) + serverExit),
	}
	if s.Resources != nil {
		c.Resources = *s.Resources
	}
	if s.Form == v1alpha1.FormDaemonSet {
		c.NodeSelector = map[string]string{v1alpha1.LabelControlPlane: ""}
		// One server per control plane node, whatever its taints: without a server that
		// node's API server reaches no node.
		c.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return c
}

// HealthHost is the address at which programs on the server's node reach a health port
// with that bind address; empty means all addresses, as for the program.
func HealthHost(bindAddress string) string {
	if ip, err := netip.ParseAddr(bindAddress); err != nil || ip.IsUnspecified() {
		return v1alpha1.DefaultHealthBindAddress
	}
	return bindAddress
}

// claimsEnv lets agents claim only their own node, and the default route only if the
// bundle configures it for all agents: an agent that claims another node's address gets
// its connections. The same holds for the addresses of Services.
func claimsEnv(b *v1alpha1.Bundle) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: settings.AgentClaims, Value: "node"}}
	if isTrue, _ := strconv.ParseBool(identifiers(b).Get("default-route")); isTrue {
		env = append(env, corev1.EnvVar{Name: settings.DefaultRouteAgents, Value: "*"})
	}
	if ranges := b.Konnectivity.Server.NonNodeCIDRs; len(ranges) > 0 {
		env = append(env, corev1.EnvVar{Name: settings.NonNodeCIDRs, Value: strings.Join(ranges, ",")})
	}
	return env
}

// frontendEnv makes the server accept a certificate of its client CA only if it has one
// of the names of kube-apiserver's.
func frontendEnv(k *v1alpha1.Konnectivity) []corev1.EnvVar {
	if k.Transport.TCP == nil {
		return nil
	}
	return []corev1.EnvVar{{Name: settings.AllowedClientNames, Value: strings.Join(k.Transport.TCP.ClientNames, ",")}}
}

// stateEnv lets the tunnel's API server read the server's state, and the server connect to
// that API itself if its address is known, so that kube-apiserver reaches it without agents.
func stateEnv(b *v1alpha1.Bundle) []corev1.EnvVar {
	a := &b.TunnelAPI
	if !ptr.Deref(a.Enabled, false) {
		return nil
	}
	env := []corev1.EnvVar{
		{Name: settings.StatePort, Value: strconv.FormatInt(int64(a.StatePort), 10)},
		{Name: settings.StateServiceAccount, Value: b.Namespace + "/" + v1alpha1.TunnelAPIName},
	}
	if ptr.Deref(a.Connect, false) {
		env = append(env, corev1.EnvVar{Name: settings.StateConnect, Value: "true"})
	}
	if a.ClusterIP != "" {
		env = append(env, corev1.EnvVar{Name: settings.LocalDestinations, Value: net.JoinHostPort(a.ClusterIP, strconv.Itoa(apiservice.DefaultPort))})
	}
	return env
}

// identifiers are those of the agents; validation refuses what cannot be read.
func identifiers(b *v1alpha1.Bundle) url.Values {
	v, err := url.ParseQuery(b.Konnectivity.Agent.Identifiers)
	if err != nil {
		return nil
	}
	return v
}

func serverPorts(b *v1alpha1.Bundle) []component.Port {
	k := &b.Konnectivity
	ports := []component.Port{
		{Name: PortAgent, Number: k.AgentPort, Host: true},
		{Name: PortAdmin, Number: k.Server.AdminPort, Host: true},
		{Name: PortHealth, Number: k.Server.HealthPort, Host: true},
	}
	if k.Transport.TCP != nil {
		ports = append(ports, component.Port{Name: PortServer, Number: TCPPort(k.Transport.TCP), Host: true})
	}
	if ptr.Deref(b.TunnelAPI.Enabled, false) {
		ports = append(ports, component.Port{Name: PortState, Number: b.TunnelAPI.StatePort, Host: true})
	}
	return ports
}

func serverVolumes(b *v1alpha1.Bundle) []component.Volume {
	k := &b.Konnectivity
	volumes := []component.Volume{
		{Name: "k8s-certs", HostPath: b.ControlPlane.PKIDir, MountPath: b.ControlPlane.PKIDir, ReadOnly: true},
		// The Kubernetes documentation uses FileOrCreate. It creates an empty file if
		// there is none, so the file must be written first.
		{Name: "kubeconfig", HostPath: k.Server.Kubeconfig, HostPathType: corev1.HostPathFileOrCreate,
			MountPath: k.Server.Kubeconfig, ReadOnly: true},
	}
	if uds := k.Transport.UDS; uds != nil {
		dir := path.Dir(uds.Path)
		volumes = append(volumes, component.Volume{
			Name: "konnectivity-uds", HostPath: dir, HostPathType: corev1.HostPathDirectoryOrCreate, MountPath: dir,
		})
	}
	return volumes
}

// reviewsPerSecond is how many requests a server makes: one or two for each agent that
// connects. At the flag's default of 5 a second a server that restarts would let
// 5,000 agents in within half an hour. The API server has its own means to defend itself.
const reviewsPerSecond = 100

// ServerFlags are all flags of the server. Its rate of requests to the API server is
// the only one of the bundle's that extraArgs may replace.
func ServerFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	rate := []component.Flag{
		component.IntFlag("kubeconfig-qps", reviewsPerSecond),
		component.IntFlag("kubeconfig-burst", 2*reviewsPerSecond),
	}
	return append(OwnServerFlags(b), component.Merge(rate, component.ExtraFlags(b.Konnectivity.Server.ExtraArgs))...)
}

// OwnServerFlags are the flags that the bundle sets and extraArgs may not.
func OwnServerFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	k := &b.Konnectivity
	flags := []component.Flag{component.BoolFlag("logtostderr", true)}
	flags = append(flags, frontendFlags(k)...)
	flags = append(flags,
		component.PathFlag("cluster-cert", k.Server.CertFile),
		component.PathFlag("cluster-key", k.Server.KeyFile),
		component.PlainFlag("mode", serverMode(k.ProxyProtocol)),
		component.PortFlag("agent-port", PortAgent, k.AgentPort),
		component.PortFlag("admin-port", PortAdmin, k.Server.AdminPort),
		component.PortFlag("health-port", PortHealth, k.Server.HealthPort),
		component.PlainFlag("health-bind-address", k.Server.HealthBindAddress),
		component.PlainFlag("agent-namespace", b.Namespace),
		component.PlainFlag("agent-service-account", k.AgentServiceAccount),
		component.PathFlag("kubeconfig", k.Server.Kubeconfig),
		component.PlainFlag("authentication-audience", k.AuthenticationAudience),
	)
	flags = append(flags, strategyFlags(k.Server.ProxyStrategies)...)
	return append(flags, countFlags(b)...)
}

// strategyFlags leave the program's default if there are none.
func strategyFlags(strategies []v1alpha1.ProxyStrategy) []component.Flag {
	if len(strategies) == 0 {
		return nil
	}
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = string(s)
	}
	return []component.Flag{component.PlainFlag("proxy-strategies", strings.Join(names, ","))}
}

// frontendFlags are the side that kube-apiserver dials.
func frontendFlags(k *v1alpha1.Konnectivity) []component.Flag {
	if tcp := k.Transport.TCP; tcp != nil {
		return []component.Flag{
			component.PortFlag("server-port", PortServer, TCPPort(tcp)),
			component.PathFlag("server-cert", tcp.ServerCert),
			component.PathFlag("server-key", tcp.ServerKey),
			component.PathFlag("server-ca-cert", tcp.ClientCA),
		}
	}
	return []component.Flag{
		component.PathFlag("uds-name", k.Transport.UDS.Path),
		component.BoolFlag("delete-existing-uds-file", true),
		component.IntFlag("server-port", 0),
	}
}

func countFlags(b *v1alpha1.Bundle) []component.Flag {
	k := &b.Konnectivity
	if ptr.Deref(k.LeaseCounting, false) {
		return []component.Flag{
			component.BoolFlag("enable-lease-controller", true),
			component.PlainFlag("lease-namespace", k.LeaseNamespace),
			component.PlainFlag("lease-label", leaseLabel()),
		}
	}
	return []component.Flag{component.IntFlag("server-count", ptr.Deref(k.Server.Count, 1))}
}

// CheckCount fails if a cluster has more API servers than the server count that agents
// connect to: each API server has a Konnectivity server of its own, and one without an
// agent reaches no node. With LeaseCounting, agents get the number from the Leases.
func CheckCount(b *v1alpha1.Bundle, apiServers int) error {
	k := &b.Defaulted().Konnectivity
	count := int(ptr.Deref(k.Server.Count, 1))
	if !ptr.Deref(k.Enabled, true) || ptr.Deref(k.LeaseCounting, false) || apiServers <= count {
		return nil
	}
	return fmt.Errorf("the cluster has %d kube-apiservers, and konnectivity.server.count is %d: an agent would connect to %d of their servers, "+
		"and a kube-apiserver whose server has no agent reaches no node, Pod or webhook: set konnectivity.server.count: %d, or konnectivity.leaseCounting: true, "+
		"in the bundle for every control plane node and for \"fairlead install\"", apiServers, count, count, apiServers)
}

func leaseLabel() string { return appLabel + "=" + ServerName }

func serverMode(p v1alpha1.ProxyProtocol) string {
	if p == v1alpha1.ProxyHTTPConnect {
		return "http-connect"
	}
	return "grpc"
}

// TCPPort is the port in the transport's URL, 0 if it names none; validation
// refuses that.
func TCPPort(t *v1alpha1.TCPTransport) int32 {
	u, err := url.Parse(t.URL)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
