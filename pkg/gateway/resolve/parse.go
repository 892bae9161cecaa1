// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"net/netip"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// query is what a host name or a literal address may stand for.
type query struct {
	host string // lower case, without a trailing dot
	addr netip.Addr

	// namespace and service are set if the name can be that of a Service. If maybe is set,
	// it can also be that of a node, or with an inner dot that of an external host.
	namespace, service string
	maybe              bool

	hostname string     // of a Pod of a headless Service
	podAddr  netip.Addr // of a Pod in namespace, by a name such as 10-0-0-1.NS.pod
}

// parse reads a host as a client sends it. The name of a Service without a namespace is one
// in the given namespace.
func parse(host, namespace, domain string) (query, error) {
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		if addr.Zone() != "" {
			return query{}, gateway.Errorf(gateway.ReasonDenied, "use the address without a zone",
				"the zone in %s has no meaning in the cluster", host)
		}
		return query{host: host, addr: addr.Unmap()}, nil
	}
	name, absolute := strings.CutSuffix(strings.ToLower(host), ".")
	if err := checkName(host, name); err != nil {
		return query{}, err
	}
	return parseName(query{host: name}, namespace, domain, absolute)
}

// parseName finds out what a name may stand for.
func parseName(q query, namespace, domain string, absolute bool) (query, error) {
	base, inDomain := strings.CutSuffix(q.host, "."+domain)
	labels := strings.Split(base, ".")
	n := len(labels)
	last := labels[n-1]
	switch {
	case last == "svc" && n == 3:
		q.service, q.namespace = labels[0], labels[1]
	case last == "svc" && n == 4:
		q.hostname, q.service, q.namespace = labels[0], labels[1], labels[2]
	case last == "pod" && n == 3:
		q.podAddr, q.namespace = podAddr(labels[0]), labels[1]
		if !q.podAddr.IsValid() {
			return q, notFound(q.host, "write the Pod's address with dashes, such as 10-0-0-1.NAMESPACE.pod")
		}
	case inDomain, (last == "svc" || last == "pod") && n > 1:
		return q, notFound(q.host, "write SERVICE.NAMESPACE.svc."+domain+" for a Service")
	case n == 1:
		q.service, q.namespace, q.maybe = labels[0], namespace, true
	case n == 2 && !absolute:
		q.service, q.namespace, q.maybe = labels[0], labels[1], true
	default:
		q.maybe = true
	}
	return q, nil
}

// checkName refuses what cannot be the name of a host, above all what a resolver further on
// would take for an address, such as 127.1 and 0x7f000001: rules that deny addresses would
// not see it.
func checkName(host, name string) error {
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return gateway.Errorf(gateway.ReasonUnsupported, "send a host name or an IP address", "%q is not a host name", host)
		}
		if label[0] == '_' {
			return gateway.Errorf(gateway.ReasonUnsupported, "use the name of the Service, and the port by its number",
				"%q is the name of an SRV record, not of a host", host)
		}
	}
	if len(name) > 253 {
		return gateway.Errorf(gateway.ReasonUnsupported, "send a host name or an IP address", "the host name is longer than 253 bytes")
	}
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		return gateway.Errorf(gateway.ReasonDenied, "write all four numbers, each up to 255",
			"%q looks like an address and is not one", host)
	}
	if last == "localhost" {
		return gateway.Errorf(gateway.ReasonDenied, "use the name of a Service, a Pod or a node",
			"%q means this proxy's own host", host)
	}
	return nil
}

// podAddr reads an address that is written with dashes.
func podAddr(label string) netip.Addr {
	for _, separator := range []string{".", ":"} {
		if a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator)); err == nil && a.Zone() == "" {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

func notFound(host, hint string) *gateway.Error {
	return gateway.Errorf(gateway.ReasonNotFound, hint, "the cluster has no name %s", host)
}
