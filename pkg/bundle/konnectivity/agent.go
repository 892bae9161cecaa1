// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	// AgentName is the name of the agents' workload and the value of their label.
	AgentName = "konnectivity-agent"
	// AgentBinary is the base name of our own agent program.
	AgentBinary = "konnectivity-agent"

	// TokenDir is where the agent's token is mounted.
	TokenDir = "/var/run/secrets/tokens"
	// TokenFile is the token's file in TokenDir, and the name of the volume.
	TokenFile = "konnectivity-agent-token"
	// CAFile verifies the server: the cluster's CA.
	CAFile = component.APIDir + "/ca.crt"

	// agentGrace is short because the first SIGTERM only drains the upstream agent,
	// which then waits to be killed. Servers stop using it at once.
	agentGrace = 10
)

func agentLabels() map[string]string { return map[string]string{appLabel: AgentName} }

// Agent describes the proxy agent.
func Agent(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	k, a := &b.Konnectivity, &b.Konnectivity.Agent
	labels := agentLabels()
	maps.Copy(labels, map[string]string{addonModeLabel: addonModeReconcile})
	c := component.Component{
		Name: AgentName, Namespace: b.Namespace, Binary: AgentBinary,
		Labels: labels, Selector: agentLabels(), PodLabels: agentLabels(),
		ContainerName: "konnectivity-agent", Image: a.Image,
		Command: []string{"/proxy-agent"},
		Flags:   AgentFlags(b),
		Ports: []component.Port{
			{Name: PortAdmin, Number: a.AdminPort}, {Name: PortHealth, Number: a.HealthPort},
		},
		Env:            agentEnv(a),
		Liveness:       &component.Probe{Port: PortHealth, Path: "/healthz", Delay: 15, Timeout: 15},
		Readiness:      component.Readiness(component.Probe{Port: PortHealth}),
		Volumes:        agentVolumes(k),
		ServiceAccount: k.AgentServiceAccount,
		PodSecurity:    component.RestrictedPod(), Security: component.RestrictedContainer(),
		PriorityClass:           "system-cluster-critical",
		NodeSelector:            a.NodeSelector,
		TerminationGraceSeconds: ptr.To(int64(agentGrace)),
		DNSConfig:               agentDNS(),
	}
	return agentPlacement(c, a)
}

// agentVolumes have a token for kube-apiserver only where agents call it, to count Leases.
func agentVolumes(k *v1alpha1.Konnectivity) []component.Volume {
	api := &component.API{}
	if ptr.Deref(k.LeaseCounting, false) {
		api.TokenSeconds = component.TokenSeconds
	}
	return []component.Volume{
		{Name: TokenFile, MountPath: TokenDir, ReadOnly: true, Token: &component.Token{
			Audience: k.AuthenticationAudience, Path: TokenFile, ExpirationSeconds: component.TokenSeconds,
		}},
		{Name: "api", MountPath: component.APIDir, ReadOnly: true, API: api},
	}
}

// agentDNS makes the resolver try five times, once a second. An agent cannot
// work until it knows its servers' addresses, and one lost packet must not cost
// the default timeout of 5 s.
func agentDNS() *corev1.PodDNSConfig {
	return &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{
		{Name: "timeout", Value: ptr.To("1")},
		{Name: "attempts", Value: ptr.To("5")},
	}}
}

func agentPlacement(c component.Component, a *v1alpha1.KonnectivityAgent) component.Component {
	if a.Tolerations != nil {
		c.Tolerations = *a.Tolerations
	}
	if a.Resources != nil {
		c.Resources = *a.Resources
	}
	if a.Form == v1alpha1.FormDeployment {
		c.Replicas = ptr.Deref(a.Replicas, 0)
		c.Affinity = component.SpreadHosts(agentLabels())
	}
	if ptr.Deref(a.HostNetwork, false) {
		c.HostNetwork = true
		// The server's host name is that of a Service, which the node's resolver does not
		// know.
		c.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		return c
	}
	// On the Pod network old and new agent can run side by side, so a node is never
	// without one; on the host network their ports would clash.
	c.MaxSurge, c.MaxUnavailable = ptr.To(intstr.FromString("10%")), ptr.To(intstr.FromInt32(0))
	return c
}

// agentEnv is what identifiers such as host=$(NODE_NAME) may refer to.
func agentEnv(a *v1alpha1.KonnectivityAgent) []corev1.EnvVar {
	if !strings.Contains(a.Identifiers, "$(") {
		return nil
	}
	field := func(name, fieldPath string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: fieldPath}}}
	}
	return []corev1.EnvVar{field(v1alpha1.NodeNameVariable, "spec.nodeName"), field(v1alpha1.HostIPVariable, "status.hostIP")}
}

// AgentFlags are all flags of the agent.
func AgentFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	return append(OwnAgentFlags(b), component.ExtraFlags(b.Konnectivity.Agent.ExtraArgs)...)
}

// OwnAgentFlags are the flags that the bundle sets, without extraArgs.
func OwnAgentFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	k, a := &b.Konnectivity, &b.Konnectivity.Agent
	flags := []component.Flag{
		component.BoolFlag("logtostderr", true),
		component.PathFlag("ca-cert", CAFile),
		component.PlainFlag("proxy-server-host", k.ServerHost),
		component.PortFlag("proxy-server-port", PortAgent, k.AgentPort),
		component.PortFlag("admin-server-port", PortAdmin, a.AdminPort),
		component.PortFlag("health-server-port", PortHealth, a.HealthPort),
		component.PathFlag("service-account-token-path", TokenDir+"/"+TokenFile),
	}
	if a.Identifiers != "" {
		flags = append(flags, component.PlainFlag("agent-identifiers", a.Identifiers))
	}
	if ptr.Deref(k.LeaseCounting, false) {
		flags = append(flags,
			component.BoolFlag("count-server-leases", true),
			// While counting changes, not all servers have a Lease.
			component.PlainFlag("server-count-source", "max"),
			component.PlainFlag("lease-namespace", k.LeaseNamespace),
			component.PlainFlag("lease-label", leaseLabel()),
		)
	}
	if manyServers(k) {
		// One host name for several servers: keep looking, or an agent never finds a
		// server that was away when the agent started.
		flags = append(flags, component.BoolFlag("sync-forever", true))
	}
	return flags
}

func manyServers(k *v1alpha1.Konnectivity) bool {
	return ptr.Deref(k.LeaseCounting, false) || ptr.Deref(k.Server.Count, 1) > 1
}
