// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

const (
	// Binary is the base name of the program.
	Binary = "fairlead"
	// User is the user of the static Pod's kubeconfig.
	User = "fairlead:gateway"
	// PortProxy names the port for clients.
	PortProxy = "proxy"
	// PortHealth names the port of health and metrics.
	PortHealth = "healthport"
	// RulesPath is the rule file, in the Pod and on the node.
	RulesPath = configDir + "/" + rulesKey

	configDir = "/etc/kubernetes/" + v1alpha1.GatewayName
	rulesKey  = "rules.yaml"
	nameLabel = "app.kubernetes.io/name"
	tlsDir    = "/var/run/secrets/" + v1alpha1.GatewayName + "/tls"
)

// Enabled reports whether a bundle has the gateway.
func Enabled(b *v1alpha1.Bundle) bool { return ptr.Deref(b.Defaulted().Gateway.Enabled, false) }

// IsStatic reports whether a bundle has it as a static Pod.
func IsStatic(b *v1alpha1.Bundle) bool {
	b = b.Defaulted()
	return Enabled(b) && b.Gateway.Form == v1alpha1.FormStaticPod
}

// Labels select the gateway's Pods.
func Labels() map[string]string { return map[string]string{nameLabel: v1alpha1.GatewayName} }

// Component describes the gateway in the bundle's form.
func Component(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	g := &b.Gateway
	probe := component.Probe{Port: PortHealth, Path: "/healthz", Delay: 5}
	c := component.Component{
		Name: v1alpha1.GatewayName, Namespace: b.Namespace, Binary: Binary,
		Labels: Labels(), Selector: Labels(), PodLabels: Labels(),
		ContainerName: "gateway", Image: g.Image,
		Command:                 []string{"/fairlead", "socks5"},
		Flags:                   Flags(b),
		Ports:                   []component.Port{{Name: PortProxy, Number: g.Port}, {Name: PortHealth, Number: g.HealthPort}},
		Security:                component.RestrictedContainer(),
		TerminationGraceSeconds: ptr.To(int64(math.Ceil((shutdownDelay(b) + drainTimeout(b)).Seconds())) + exitSeconds),
	}
	if g.Resources != nil {
		c.Resources = *g.Resources
	}
	if g.Form == v1alpha1.FormStaticPod {
		probe.Host = v1alpha1.DefaultHealthBindAddress
		c = static(b, c)
	} else {
		c = deployed(b, c)
	}
	c.Readiness = component.Readiness(component.Probe{Port: probe.Port, Host: probe.Host})
	c.Liveness = &probe
	return c
}

const (
	// defaultDrain is the program's own.
	defaultDrain = 10 * time.Second
	// exitSeconds is the time after draining until the kubelet kills the program: it writes audit lines in it.
	exitSeconds = 10
)

// shutdownDelay is the time in which a Pod that ends accepts connections: proxies of nodes learn of changed endpoints in it. A static Pod has no Service.
func shutdownDelay(b *v1alpha1.Bundle) time.Duration {
	if b.Gateway.Form == v1alpha1.FormStaticPod {
		return 0
	}
	return 3 * time.Second
}

// drainTimeout is the time that open connections have when a Pod ends.
func drainTimeout(b *v1alpha1.Bundle) time.Duration {
	drain := defaultDrain
	for _, a := range b.Gateway.ExtraArgs {
		if d, err := time.ParseDuration(a.Value); a.Name == "drain-timeout" && err == nil {
			drain = max(d, 0)
		}
	}
	return drain
}

// deployed adds what only the Deployment has.
func deployed(b *v1alpha1.Bundle, c component.Component) component.Component {
	g := &b.Gateway
	c.ServiceAccount = v1alpha1.GatewayName
	c.PodSecurity = component.RestrictedPod()
	c.Replicas = ptr.Deref(g.Replicas, 1)
	c.Affinity = component.SpreadHosts(Labels())
	c.NodeSelector = g.NodeSelector
	c.Tolerations = ptr.Deref(g.Tolerations, nil)
	c.Volumes = []component.Volume{
		{Name: "tls", MountPath: tlsDir, ReadOnly: true, Secret: g.CertificateSecret},
		{Name: "api", MountPath: component.APIDir, ReadOnly: true, API: &component.API{TokenSeconds: component.TokenSeconds}},
	}
	if g.Rules != nil {
		c.Volumes = append(c.Volumes, component.Volume{Name: "rules", MountPath: configDir, ReadOnly: true, ConfigMap: rulesName})
	}
	return c
}

// static adds what only the static Pod has. It runs as root to read the kubeconfig and the
// key, which belong to root with mode 0600, and to reach the Konnectivity server's socket.
func static(b *v1alpha1.Bundle, c component.Component) component.Component {
	g := &b.Gateway
	c.PodSecurity = component.RootPod()
	c.HostNetwork = true
	for i := range c.Ports {
		c.Ports[i].Host = true
	}
	c.Volumes = []component.Volume{
		{Name: "k8s-certs", HostPath: b.ControlPlane.PKIDir, HostPathType: corev1.HostPathDirectory, MountPath: b.ControlPlane.PKIDir, ReadOnly: true},
		{Name: "kubeconfig", HostPath: g.Kubeconfig, HostPathType: corev1.HostPathFile, MountPath: g.Kubeconfig, ReadOnly: true},
	}
	if uds := b.Konnectivity.Transport.UDS; uds != nil {
		dir := path.Dir(uds.Path)
		c.Volumes = append(c.Volumes, component.Volume{Name: "konnectivity-uds", HostPath: dir, HostPathType: corev1.HostPathDirectoryOrCreate, MountPath: dir})
	}
	if g.Rules != nil {
		c.Volumes = append(c.Volumes, component.Volume{Name: "rules", HostPath: configDir, HostPathType: corev1.HostPathDirectory, MountPath: configDir, ReadOnly: true})
	}
	return c
}

// Flags are all flags of the gateway.
func Flags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	return append(OwnFlags(b), component.ExtraFlags(b.Gateway.ExtraArgs)...)
}

// OwnFlags are the flags that the bundle sets and extraArgs may not.
func OwnFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	g := &b.Gateway
	flags := []component.Flag{component.PlainFlag("listen", address("", g.Port))}
	if g.Form == v1alpha1.FormStaticPod {
		flags = append(flags, staticFlags(b)...)
	} else {
		flags = append(flags,
			component.PlainFlag("via", "network"),
			component.PathFlag("tls-cert", tlsDir+"/"+corev1.TLSCertKey),
			component.PathFlag("tls-key", tlsDir+"/"+corev1.TLSPrivateKeyKey),
			component.PlainFlag("metrics-address", address("", g.HealthPort)),
			component.PlainFlag("shutdown-delay-duration", shutdownDelay(b).String()),
		)
	}
	flags = append(flags,
		component.BoolFlag("token-review", true),
		component.PlainFlag("token-audience", strings.Join(g.TokenAudiences, ",")),
		component.BoolFlag("access-review", true),
	)
	if ptr.Deref(g.ClientCertificates, false) {
		flags = append(flags, component.PathFlag("client-ca", clientCA(b)))
	}
	if g.Rules != nil {
		flags = append(flags, component.PathFlag("rules", RulesPath))
	}
	if len(g.Allow) > 0 {
		flags = append(flags, component.PlainFlag("allow", strings.Join(g.Allow, ",")))
	}
	if only := reachable(b); len(only) > 0 {
		flags = append(flags, component.PlainFlag("only", strings.Join(only, ",")))
	}
	if deny := denied(b); len(deny) > 0 {
		flags = append(flags, component.PlainFlag("deny", strings.Join(deny, ",")))
	}
	return flags
}

// denied are the destinations of the bundle's deny, and those that its agents deny: what a user may
// not reach through the tunnel is not reached through the gateway either. What agents deny by
// default, the gateway always denies.
func denied(b *v1alpha1.Bundle) []string {
	deny := slices.Clone(b.Gateway.Deny)
	for _, rule := range agentRules(b, "deny-destinations") {
		if !slices.Contains(deny, rule) && !slices.Contains(strings.Split(destinations.DefaultDeny, ","), rule) {
			deny = append(deny, rule)
		}
	}
	return deny
}

// reachable are the destinations of the list to which the bundle's agents are limited, if there is one, and
// those that the bundle allows the gateway by its own: what is not reached through the tunnel is not reached
// through the gateway either.
func reachable(b *v1alpha1.Bundle) []string {
	only := agentRules(b, "allow-destinations")
	if len(only) == 0 {
		return nil
	}
	for _, rule := range b.Gateway.Allow {
		if !slices.Contains(only, rule) {
			only = append(only, rule)
		}
	}
	return only
}

// agentRules are the rules of a flag of the agents, if the bundle sets it. The last one holds, as for the agent.
func agentRules(b *v1alpha1.Bundle, flag string) (rules []string) {
	list := ""
	for _, a := range b.Konnectivity.Agent.ExtraArgs {
		if a.Name == flag {
			list = a.Value
		}
	}
	for rule := range strings.SplitSeq(list, ",") {
		if rule = strings.TrimSpace(rule); rule != "" {
			rules = append(rules, rule)
		}
	}
	return rules
}

// staticFlags connect through the Konnectivity server of the same node.
func staticFlags(b *v1alpha1.Bundle) []component.Flag {
	g, k := &b.Gateway, &b.Konnectivity
	mode := "grpc"
	if k.ProxyProtocol == v1alpha1.ProxyHTTPConnect {
		mode = "http-connect"
	}
	flags := []component.Flag{
		component.PathFlag("kubeconfig", g.Kubeconfig),
		component.PlainFlag("via", "direct"),
		component.PlainFlag("server-mode", mode),
	}
	if tcp := k.Transport.TCP; tcp != nil {
		u, err := url.Parse(tcp.URL)
		if err != nil {
			u = &url.URL{} // validation refuses it
		}
		flags = append(flags,
			component.PlainFlag("server-address", u.Host),
			component.PathFlag("server-cert", tcp.ClientCert),
			component.PathFlag("server-key", tcp.ClientKey),
			component.PathFlag("server-ca", tcp.CABundle),
		)
		if tcp.TLSServerName != "" {
			flags = append(flags, component.PlainFlag("server-name", tcp.TLSServerName))
		}
	} else if k.Transport.UDS != nil {
		flags = append(flags, component.PathFlag("server-socket", k.Transport.UDS.Path))
	}
	return append(flags,
		component.PathFlag("tls-cert", g.CertFile),
		component.PathFlag("tls-key", g.KeyFile),
		component.PlainFlag("metrics-address", address(v1alpha1.DefaultHealthBindAddress, g.HealthPort)),
	)
}

// clientCA is the cluster's CA.
func clientCA(b *v1alpha1.Bundle) string {
	if b.Gateway.Form == v1alpha1.FormStaticPod {
		return path.Join(b.ControlPlane.PKIDir, "ca.crt")
	}
	return component.APIDir + "/ca.crt"
}

func address(host string, port int32) string {
	return net.JoinHostPort(host, strconv.FormatInt(int64(port), 10))
}
