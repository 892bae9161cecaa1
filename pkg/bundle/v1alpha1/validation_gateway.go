// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func validateGateway(b *Bundle, p *field.Path) field.ErrorList {
	g := &b.Gateway
	var errs field.ErrorList
	switch g.Form {
	case FormDeployment:
		errs = validateGatewayDeployment(g, p)
	case FormStaticPod:
		errs = validateGatewayStaticPod(b, p)
	default:
		errs = field.ErrorList{field.NotSupported(p.Child("form"), g.Form, []Form{FormDeployment, FormStaticPod})}
	}
	errs = append(errs, image(g.Image, p.Child("image"))...)
	errs = append(errs, validateGatewayPorts(b, p)...)
	for i, host := range g.Hosts {
		if _, err := netip.ParseAddr(host); err != nil && len(validation.IsDNS1123Subdomain(host)) > 0 && len(validation.IsWildcardDNS1123Subdomain(host)) > 0 {
			errs = append(errs, field.Invalid(p.Child("hosts").Index(i), host, "must be a DNS name or an IP address, without scheme, port or brackets"))
		}
	}
	errs = append(errs, validateAudiences(g, p.Child("tokenAudiences"))...)
	errs = append(errs, validateGatewayRules(g.Rules, p.Child("rules"))...)
	return append(errs, resources(g.Resources, p.Child("resources"))...)
}

func validateGatewayDeployment(g *Gateway, p *field.Path) field.ErrorList {
	errs := atLeastOne(g.Replicas, p.Child("replicas"), "set enabled to false to have none")
	if all := []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}; !slices.Contains(all, g.ServiceType) {
		errs = append(errs, field.NotSupported(p.Child("serviceType"), g.ServiceType, all))
	}
	errs = append(errs, dnsSubdomain(g.CertificateSecret, p.Child("certificateSecret"))...)
	if g.CertificateSecret != DefaultGatewaySecret && len(g.Hosts) > 0 {
		errs = append(errs, field.Forbidden(p.Child("hosts"), "certificateSecret names a certificate of yours; put the names into it, or remove one of the two fields"))
	}
	errs = append(errs, nodeSelector(g.NodeSelector, p.Child("nodeSelector"))...)
	errs = append(errs, tolerations(g.Tolerations, p.Child("tolerations"))...)
	for _, f := range []struct{ name, value string }{{"certFile", g.CertFile}, {"keyFile", g.KeyFile}, {"kubeconfig", g.Kubeconfig}} {
		if f.value != "" {
			errs = append(errs, field.Invalid(p.Child(f.name), f.value, "is for form StaticPod; remove it"))
		}
	}
	return errs
}

func validateGatewayStaticPod(b *Bundle, p *field.Path) field.ErrorList {
	g := &b.Gateway
	var errs field.ErrorList
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		errs = append(errs, field.Invalid(p.Child("form"), g.Form, "connects through the Konnectivity server, but konnectivity.enabled is false; use form Deployment"))
	}
	errs = append(errs, below(g.CertFile, b.ControlPlane.PKIDir, p.Child("certFile"))...)
	errs = append(errs, below(g.KeyFile, b.ControlPlane.PKIDir, p.Child("keyFile"))...)
	errs = append(errs, absolute(g.Kubeconfig, p.Child("kubeconfig"))...)
	if slices.Contains([]string{b.Konnectivity.Server.Kubeconfig, b.Scheduler.Kubeconfig}, g.Kubeconfig) {
		errs = append(errs, field.Invalid(p.Child("kubeconfig"), g.Kubeconfig, "is another component's, whose user does not have the gateway's rights; use a separate file"))
	}
	if tcp := b.Konnectivity.Transport.TCP; tcp != nil && tcp.CABundle == "" {
		errs = append(errs, field.Required(field.NewPath("konnectivity", "transport", "tcp", "caBundle"), "the gateway verifies the Konnectivity server by it"))
	}
	unused := []struct {
		name string
		set  bool
	}{
		{"replicas", g.Replicas != nil}, {"serviceType", g.ServiceType != ""}, {"certificateSecret", g.CertificateSecret != ""},
		{"networkPolicy", g.NetworkPolicy != nil}, {"nodeSelector", len(g.NodeSelector) > 0}, {"tolerations", g.Tolerations != nil},
	}
	for _, u := range unused {
		if u.set {
			errs = append(errs, field.Forbidden(p.Child(u.name), "is not used with form StaticPod, which runs once on each control plane node that has its manifest; remove it"))
		}
	}
	return errs
}

// validateGatewayPorts refuses ports of other programs where the gateway shares the host with them.
func validateGatewayPorts(b *Bundle, p *field.Path) field.ErrorList {
	g, k := &b.Gateway, &b.Konnectivity
	own := []usedPort{{p.Child("port"), g.Port}, {p.Child("healthPort"), g.HealthPort}}
	var errs field.ErrorList
	for _, u := range own {
		errs = append(errs, port(u.number, u.field)...)
	}
	if g.Form != FormStaticPod {
		return append(errs, distinct(own, "")...)
	}
	tunnel := field.NewPath("konnectivity")
	others := []usedPort{
		{tunnel.Child("agentPort"), k.AgentPort},
		{tunnel.Child("server", "adminPort"), k.Server.AdminPort}, {tunnel.Child("server", "healthPort"), k.Server.HealthPort},
	}
	for _, e := range distinct(slices.Concat(others, own), "") {
		if strings.HasPrefix(e.Field, p.String()) { // the tunnel's own clashes are reported with the tunnel
			errs = append(errs, e)
		}
	}
	for _, u := range own {
		if owner, ok := nodePorts[u.number]; ok {
			errs = append(errs, field.Invalid(u.field, u.number, "is the port of "+owner+" on a control plane node; choose another"))
		}
	}
	return errs
}

func validateAudiences(g *Gateway, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(g.TokenAudiences) == 0 {
		errs = append(errs, field.Required(p, "without an audience the gateway would accept tokens that are meant for the API server; remove the field for the default"))
	}
	for i, a := range g.TokenAudiences {
		if a == "" || strings.ContainsAny(a, ", \t\n") {
			errs = append(errs, field.Invalid(p.Index(i), a, "must be one audience, without blanks and commas"))
		}
	}
	return errs
}

// gatewayKinds are what a rule can name.
var gatewayKinds = []string{"Service", "Pod", "Node", "External"}

func validateGatewayRules(r *GatewayRules, p *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range r.Allow {
		errs = append(errs, validateGatewayRule(&r.Allow[i], p.Child("allow").Index(i))...)
	}
	for i := range r.Deny {
		errs = append(errs, validateGatewayRule(&r.Deny[i], p.Child("deny").Index(i))...)
	}
	return errs
}

func validateGatewayRule(r *GatewayRule, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, kind := range r.Kinds {
		if !slices.Contains(gatewayKinds, kind) {
			errs = append(errs, field.NotSupported(p.Child("kinds").Index(i), kind, gatewayKinds))
		}
	}
	if !hasNamespace(r) {
		errs = append(errs, field.Invalid(p.Child("namespaces"), strings.Join(r.Namespaces, ", "),
			"matches nothing, because "+strings.Join(r.Kinds, " and ")+" have no namespace; remove namespaces, or split the rule"))
	}
	for _, f := range []struct {
		name string
		list []string
	}{{"users", r.Users}, {"groups", r.Groups}, {"namespaces", r.Namespaces}, {"names", r.Names}} {
		if i := slices.Index(f.list, ""); i >= 0 {
			errs = append(errs, field.Invalid(p.Child(f.name).Index(i), "", "matches nothing; remove it, or write * for all"))
		}
	}
	for i, a := range r.Addresses {
		if _, err := netip.ParsePrefix(a); err != nil {
			errs = append(errs, field.Invalid(p.Child("addresses").Index(i), a, "must be a CIDR, such as 192.0.2.0/24"))
		}
	}
	for i, text := range r.Ports {
		if err := portRange(text); err != nil {
			errs = append(errs, field.Invalid(p.Child("ports").Index(i), text, err.Error()))
		}
	}
	return errs
}

// hasNamespace reports whether one of a rule's kinds may be in one of its namespaces.
func hasNamespace(r *GatewayRule) bool {
	inSome := len(r.Kinds) == 0 || slices.Contains(r.Kinds, "Service") || slices.Contains(r.Kinds, "Pod")
	return inSome || len(r.Namespaces) == 0 || slices.ContainsFunc(r.Namespaces, func(n string) bool { return strings.Trim(n, "*") == "" })
}

// portRange accepts what the gateway's rule file accepts.
func portRange(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	high, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || low == 0 || low > high {
		return errors.New("must be a port or a range such as 8000-8100")
	}
	return nil
}
