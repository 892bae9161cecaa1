// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	tunnelidentifiers "github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
)

func validateKonnectivity(b *Bundle, p *field.Path) field.ErrorList {
	k := &b.Konnectivity
	var errs field.ErrorList
	if all := []ProxyProtocol{ProxyGRPC, ProxyHTTPConnect}; !slices.Contains(all, k.ProxyProtocol) {
		errs = append(errs, field.NotSupported(p.Child("proxyProtocol"), k.ProxyProtocol, all))
	}
	errs = append(errs, validateTransport(b, p.Child("transport"))...)
	errs = append(errs, validateServerHost(k.ServerHost, p.Child("serverHost"))...)
	errs = append(errs, dnsSubdomain(k.AgentServiceAccount, p.Child("agentServiceAccount"))...)
	errs = append(errs, dnsLabel(k.LeaseNamespace, p.Child("leaseNamespace"))...)
	if strings.TrimSpace(k.AuthenticationAudience) != k.AuthenticationAudience {
		errs = append(errs, field.Invalid(p.Child("authenticationAudience"), k.AuthenticationAudience, "must not begin or end with a blank"))
	}
	errs = append(errs, validateServer(b, p.Child("server"))...)
	errs = append(errs, validateAgent(&k.Agent, p.Child("agent"))...)
	errs = append(errs, validateStrategies(k, p)...)
	return append(errs, validatePorts(k, p)...)
}

func validateTransport(b *Bundle, p *field.Path) field.ErrorList {
	t := b.Konnectivity.Transport
	switch {
	case t.UDS != nil && t.TCP != nil:
		return field.ErrorList{field.Forbidden(p, "uds and tcp are both set; remove one")}
	case t.UDS != nil:
		return validateSocket(b, p.Child("uds", "path"))
	case t.TCP == nil:
		return field.ErrorList{field.Required(p, "set uds or tcp")}
	case b.Konnectivity.ProxyProtocol == ProxyGRPC:
		return field.ErrorList{field.Forbidden(p.Child("tcp"),
			"kube-apiserver speaks GRPC over a Unix socket only; use uds, or set proxyProtocol to HTTPConnect")}
	}
	return validateTCP(t.TCP, b.ControlPlane.PKIDir, p.Child("tcp"))
}

func validateSocket(b *Bundle, p *field.Path) field.ErrorList {
	name := b.Konnectivity.Transport.UDS.Path
	if strings.Contains(name, "://") {
		return field.ErrorList{field.Invalid(p, name, "must be a path without unix://")}
	}
	if errs := absolute(name, p); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if len(name) > MaxSocketPath {
		errs = append(errs, field.Invalid(p, name,
			fmt.Sprintf("has %d bytes, but the path of a Unix socket has at most %d; use a shorter one", len(name), MaxSocketPath)))
	}
	errs = append(errs, ownDirectory(name, &b.ControlPlane, p)...)
	if path.Dir(name) == path.Dir(b.ControlPlane.EgressSelectorFile) {
		errs = append(errs, field.Invalid(p, name,
			"is in the directory of controlPlane.egressSelectorFile, which is mounted read-only; use another directory"))
	}
	return errs
}

func validateTCP(t *TCPTransport, pkiDir string, p *field.Path) field.ErrorList {
	errs := validateURL(t.URL, p.Child("url"))
	files := []struct{ field, name string }{
		{"clientCert", t.ClientCert}, {"clientKey", t.ClientKey},
		{"serverCert", t.ServerCert}, {"serverKey", t.ServerKey}, {"clientCA", t.ClientCA},
	}
	for _, f := range files {
		errs = append(errs, below(f.name, pkiDir, p.Child(f.field))...)
	}
	for i, name := range t.ClientNames {
		if name == "" || strings.Contains(name, ",") {
			errs = append(errs, field.Invalid(p.Child("clientNames").Index(i), name,
				"must be the common name of a client certificate, without a comma, which separates names"))
		}
	}
	if t.CABundle != "" {
		errs = append(errs, below(t.CABundle, pkiDir, p.Child("caBundle"))...)
	}
	return errs
}

// validateURL rejects http:// although kube-apiserver supports it: the server has
// no such mode and always requires a client certificate.
func validateURL(s string, p *field.Path) field.ErrorList {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return field.ErrorList{field.Invalid(p, s,
			"must be https://host:port and no more; the server offers no plain http")}
	}
	n, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		return field.ErrorList{field.Invalid(p, s, "names no port; write one, such as https://127.0.0.1:8131")}
	}
	return port(int32(n), p)
}

func validateServerHost(host string, p *field.Path) field.ErrorList {
	if host == SampleServerHost {
		return field.ErrorList{field.Invalid(p, host,
			"is the placeholder of the documentation; set the address of your control plane")}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(host)) > 0 {
		return field.ErrorList{field.Invalid(p, host,
			"must be a DNS name or an IP address, without scheme, port or brackets; the port is konnectivity.agentPort")}
	}
	return nil
}

func validateServer(b *Bundle, p *field.Path) field.ErrorList {
	s := &b.Konnectivity.Server
	var errs field.ErrorList
	if forms := []Form{FormStaticPod, FormDaemonSet}; !slices.Contains(forms, s.Form) {
		errs = append(errs, field.NotSupported(p.Child("form"), s.Form, forms))
	}
	errs = append(errs, image(s.Image, p.Child("image"))...)
	errs = append(errs, atLeastOne(s.Count, p.Child("count"), "it is the number of control plane nodes")...)
	if ptr.Deref(b.Konnectivity.LeaseCounting, false) && ptr.Deref(s.Count, 1) > 1 {
		errs = append(errs, field.Forbidden(p.Child("count"), "leaseCounting counts servers by itself; remove one of the two"))
	}
	if _, err := netip.ParseAddr(s.HealthBindAddress); err != nil {
		errs = append(errs, field.Invalid(p.Child("healthBindAddress"), s.HealthBindAddress, "must be an IP address, such as 127.0.0.1, or 0.0.0.0 for all interfaces"))
	}
	errs = append(errs, below(s.CertFile, b.ControlPlane.PKIDir, p.Child("certFile"))...)
	errs = append(errs, below(s.KeyFile, b.ControlPlane.PKIDir, p.Child("keyFile"))...)
	errs = append(errs, absolute(s.Kubeconfig, p.Child("kubeconfig"))...)
	if d := ptr.Deref(s.DrainTimeout, metav1.Duration{}).Duration; d < 0 || d > time.Hour || d%time.Second != 0 {
		errs = append(errs, field.Invalid(p.Child("drainTimeout"), d.String(), "must be whole seconds from 0s to 1h"))
	}
	for i, c := range s.NonNodeCIDRs {
		if _, err := netip.ParsePrefix(c); err != nil {
			errs = append(errs, field.Invalid(p.Child("nonNodeCIDRs").Index(i), c, "must be a range such as 10.96.0.0/12"))
		}
	}
	return append(errs, resources(s.Resources, p.Child("resources"))...)
}

// identifierKinds are the kinds of identifiers that servers support.
var identifierKinds = []string{"ipv4", "ipv6", "host", "default-route"}

// Variables that konnectivity.agent.identifiers may name: the agent's Pod gets them from
// its own fields.
const (
	NodeNameVariable = "NODE_NAME" // spec.nodeName
	HostIPVariable   = "HOST_IP"   // status.hostIP
)

func validateAgent(a *KonnectivityAgent, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if forms := []Form{FormDaemonSet, FormDeployment}; !slices.Contains(forms, a.Form) {
		errs = append(errs, field.NotSupported(p.Child("form"), a.Form, forms))
	}
	errs = append(errs, atLeastOne(a.Replicas, p.Child("replicas"), "without an agent nothing gets through")...)
	errs = append(errs, image(a.Image, p.Child("image"))...)
	errs = append(errs, nodeSelector(a.NodeSelector, p.Child("nodeSelector"))...)
	errs = append(errs, tolerations(a.Tolerations, p.Child("tolerations"))...)
	errs = append(errs, resources(a.Resources, p.Child("resources"))...)
	identifiers, err := url.ParseQuery(a.Identifiers)
	if err != nil {
		return append(errs, field.Invalid(p.Child("identifiers"), a.Identifiers, "must be URL-encoded, such as default-route=true"))
	}
	for kind := range identifiers {
		if !slices.Contains(identifierKinds, kind) {
			errs = append(errs, field.NotSupported(p.Child("identifiers"), kind, identifierKinds))
		}
	}
	// The kubelet replaces the variables with a node's name and address.
	known := strings.NewReplacer("$("+NodeNameVariable+")", "node-1", "$("+HostIPVariable+")", "192.0.2.1")
	for _, values := range identifiers {
		for i := range values {
			values[i] = known.Replace(values[i])
		}
	}
	for _, problem := range tunnelidentifiers.Problems(identifiers) {
		errs = append(errs, field.Invalid(p.Child("identifiers"), a.Identifiers, problem))
	}
	return errs
}

// validateStrategies checks that strategies and identifiers fit together: each without the
// other changes nothing, or leaves connections without an agent, and no program says so.
func validateStrategies(k *Konnectivity, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	strategies, path := k.Server.ProxyStrategies, p.Child("server", "proxyStrategies")
	for i, s := range strategies {
		if all := []ProxyStrategy{StrategyDefault, StrategyDestHost, StrategyDefaultRoute}; !slices.Contains(all, s) {
			errs = append(errs, field.NotSupported(path.Index(i), s, all))
		}
		if slices.Contains(strategies[:i], s) {
			errs = append(errs, field.Duplicate(path.Index(i), s))
		}
	}
	if slices.Contains(strategies, StrategyDestHost) && !slices.Contains(strategies, StrategyDefault) && !slices.Contains(strategies, StrategyDefaultRoute) {
		errs = append(errs, field.Invalid(path, StrategyDestHost, fmt.Sprintf(
			"no agent names the addresses of webhooks, Services and aggregated APIs: add %s or %s behind it", StrategyDefault, StrategyDefaultRoute)))
	}
	ids, err := url.ParseQuery(k.Agent.Identifiers)
	if err != nil {
		return errs // validateAgent says so
	}
	route, _ := strconv.ParseBool(ids.Get("default-route"))
	for _, use := range []struct {
		strategy ProxyStrategy
		ids      bool
		example  string
	}{
		{StrategyDestHost, len(ids["ipv4"])+len(ids["ipv6"])+len(ids["host"]) > 0, "host=$(NODE_NAME)&ipv4=$(HOST_IP)"},
		{StrategyDefaultRoute, route, "default-route=true"},
	} {
		switch used := slices.Contains(strategies, use.strategy); {
		case used && !use.ids:
			errs = append(errs, field.Invalid(path, use.strategy, fmt.Sprintf("no agent would match it: add %s to konnectivity.agent.identifiers", use.example)))
		case !used && use.ids:
			errs = append(errs, field.Invalid(p.Child("agent", "identifiers"), k.Agent.Identifiers,
				fmt.Sprintf("no strategy would use them: add %s to konnectivity.server.proxyStrategies, such as [%s, %s]", use.strategy, use.strategy, StrategyDefault)))
		}
	}
	return errs
}

// nodePorts are bound on every control plane node.
var nodePorts = map[int32]string{
	2379: "etcd", 2380: "etcd", 2381: "etcd", 6443: "kube-apiserver", 10248: "the kubelet", 10249: "kube-proxy",
	10250: "the kubelet", 10256: "kube-proxy", 10257: "kube-controller-manager", 10259: "the default kube-scheduler",
}

type usedPort struct {
	field  *field.Path
	number int32
}

// serverPorts are those of the server on a control plane node, without the one for its state.
func serverPorts(k *Konnectivity, p *field.Path) []usedPort {
	ports := []usedPort{
		{p.Child("agentPort"), k.AgentPort},
		{p.Child("server", "adminPort"), k.Server.AdminPort}, {p.Child("server", "healthPort"), k.Server.HealthPort},
	}
	if tcp := k.Transport.TCP; tcp != nil {
		if u, err := url.Parse(tcp.URL); err == nil {
			n, _ := strconv.ParseInt(u.Port(), 10, 32) // validateURL says what is wrong with it
			ports = append(ports, usedPort{p.Child("transport", "tcp", "url"), int32(n)})
		}
	}
	return ports
}

func agentPorts(k *Konnectivity, p *field.Path) []usedPort {
	return []usedPort{{p.Child("agent", "adminPort"), k.Agent.AdminPort}, {p.Child("agent", "healthPort"), k.Agent.HealthPort}}
}

func validatePorts(k *Konnectivity, p *field.Path) field.ErrorList {
	server, agent := serverPorts(k, p), agentPorts(k, p)
	var errs field.ErrorList
	for _, u := range slices.Concat(server[:3], agent) {
		errs = append(errs, port(u.number, u.field)...)
	}
	host := server
	if ptr.Deref(k.Agent.HostNetwork, false) {
		host = slices.Concat(server, agent)
	} else {
		errs = append(errs, distinct(agent, "")...)
	}
	errs = append(errs, distinct(host, "; with agent.hostNetwork agents share the control plane node with the server")...)
	for _, u := range host {
		if owner, ok := nodePorts[u.number]; ok {
			errs = append(errs, field.Invalid(u.field, u.number, "is the port of "+owner+" on a control plane node; choose another"))
		}
	}
	return errs
}

// distinct refuses two uses of one port; the note is for agents' ports.
func distinct(ports []usedPort, note string) field.ErrorList {
	var errs field.ErrorList
	for i, u := range ports {
		j := slices.IndexFunc(ports[:i], func(other usedPort) bool { return other.number == u.number })
		if j < 0 {
			continue
		}
		detail := "is also the port of " + ports[j].field.String()
		if strings.Contains(u.field.String(), ".agent.") {
			detail += note
		}
		errs = append(errs, field.Invalid(u.field, u.number, detail+"; choose another"))
	}
	return errs
}
