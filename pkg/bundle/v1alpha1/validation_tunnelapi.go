// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// maxTunnelAPIReplicas times 6 connections are below the 32 that a Konnectivity server accepts for its state.
const maxTunnelAPIReplicas = 5

func validateTunnelAPI(b *Bundle, p *field.Path) field.ErrorList {
	a := &b.TunnelAPI
	var errs field.ErrorList
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		errs = append(errs, field.Invalid(p.Child("enabled"), true, "shows the state of the tunnel, but konnectivity.enabled is false; disable both or neither"))
	}
	errs = append(errs, atLeastOne(a.Replicas, p.Child("replicas"), "set enabled to false to have none")...)
	if ptr.Deref(a.Replicas, 0) > maxTunnelAPIReplicas {
		errs = append(errs, field.Invalid(p.Child("replicas"), *a.Replicas, "must be at most 5: each asks every Konnectivity server over up to 6 of the 32 connections that the server accepts"))
	}
	errs = append(errs, image(a.Image, p.Child("image"))...)
	errs = append(errs, port(a.Port, p.Child("port"))...)
	errs = append(errs, validateStatePort(b, p.Child("statePort"))...)
	if ip, err := netip.ParseAddr(a.ClusterIP); a.ClusterIP != "" && (err != nil || ip.IsUnspecified() || ip.IsLoopback() || ip.Zone() != "") {
		errs = append(errs, field.Invalid(p.Child("clusterIP"), a.ClusterIP, "must be an IP address of the cluster's range for Services, such as 10.96.0.93; remove it to let Kubernetes choose one"))
	}
	if a.ClusterIP != "" && ptr.Deref(b.Aggregation.EnableAggregatorRouting, false) {
		errs = append(errs, field.Invalid(p.Child("clusterIP"), a.ClusterIP, "is not what kube-apiserver connects to with aggregation.enableAggregatorRouting; remove one of the two"))
	}
	errs = append(errs, dnsSubdomain(a.CertificateSecret, p.Child("certificateSecret"))...)
	switch own := a.CertificateSecret != DefaultTunnelAPISecret; {
	case own && a.CABundle == "":
		errs = append(errs, field.Required(p.Child("caBundle"), "kube-apiserver verifies the certificate in certificateSecret by it; paste the PEM of its CA"))
	case !own && a.CABundle != "":
		errs = append(errs, field.Forbidden(p.Child("caBundle"), "\"fairlead install\" makes the CA; remove it, or set certificateSecret to a Secret of yours"))
	}
	return append(errs, resources(a.Resources, p.Child("resources"))...)
}

// validateStatePort refuses ports of other programs on a control plane node, which the Konnectivity server shares with them.
func validateStatePort(b *Bundle, p *field.Path) field.ErrorList {
	n := b.TunnelAPI.StatePort
	errs := port(n, p)
	for _, other := range controlPlanePorts(b) {
		if other.number == n {
			errs = append(errs, field.Invalid(p, n, "is also "+strings.TrimPrefix(other.field.String(), "spec.")+"; choose another"))
		}
	}
	if owner, ok := nodePorts[n]; ok {
		errs = append(errs, field.Invalid(p, n, "is the port of "+owner+" on a control plane node; choose another"))
	}
	return errs
}

// controlPlanePorts are those of the bundle's programs in the network of a control plane node,
// without the one for the Konnectivity server's state.
func controlPlanePorts(b *Bundle) []usedPort {
	k, p := &b.Konnectivity, field.NewPath("konnectivity")
	ports := serverPorts(k, p)
	if ptr.Deref(k.Agent.HostNetwork, false) {
		ports = append(ports, agentPorts(k, p)...)
	}
	if g := &b.Gateway; ptr.Deref(g.Enabled, false) && g.Form == FormStaticPod {
		p := field.NewPath("gateway")
		ports = append(ports, usedPort{p.Child("port"), g.Port}, usedPort{p.Child("healthPort"), g.HealthPort})
	}
	if s := &b.Scheduler; ptr.Deref(s.Enabled, true) && s.Form == FormStaticPod {
		ports = append(ports, usedPort{field.NewPath("scheduler").Child("securePort"), s.SecurePort})
	}
	return ports
}
