// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// meanings returns what a name may stand for, in the order in which it is looked for. The endpoints
// of a Service are Pods, which may be reached by its name with the right to them.
func (q *query) meanings(port uint16) (all []gateway.Destination) {
	if q.service != "" {
		all = append(all, gateway.Destination{Host: q.host, Port: port, Kind: gateway.KindService, Namespace: q.namespace, Name: q.service})
	}
	if q.service != "" || q.podAddr.IsValid() {
		all = append(all, gateway.Destination{Host: q.host, Port: port, Kind: gateway.KindPod, Namespace: q.namespace, Name: q.hostname})
	}
	return append(all, q.others(port)...)
}

// others returns what a name may stand for that is none of a Service.
func (q *query) others(port uint16) (all []gateway.Destination) {
	if !q.maybe {
		return nil
	}
	all = append(all, gateway.Destination{Host: q.host, Port: port, Kind: gateway.KindNode, Name: q.host})
	if strings.Contains(q.host, ".") {
		all = append(all, gateway.Destination{Host: q.host, Port: port, Kind: gateway.KindExternal})
	}
	return all
}

func clusterDomain(domain string) string {
	return strings.Trim(strings.ToLower(cmp.Or(domain, DefaultClusterDomain)), ".")
}

// Names returns all spellings of what a host may stand for in the cluster's DNS, in lower case and
// without a dot at the end: a rule for one of them is a rule for all. It returns none for an address.
// An empty namespace is none, an empty domain is DefaultClusterDomain.
func Names(host, namespace, domain string) []string {
	domain = clusterDomain(domain)
	q, err := parse(host, namespace, domain)
	switch {
	case err != nil:
		return []string{strings.ToLower(strings.TrimSuffix(host, "."))}
	case q.addr.IsValid():
		return nil
	}
	all := []string{q.host}
	if short, ok := strings.CutSuffix(q.host, "."+domain); ok {
		all = append(all, short)
	} else if !q.maybe {
		all = append(all, q.host+"."+domain)
	}
	if q.service != "" && q.namespace != "" {
		all = append(all, ServiceNames(q.service, q.namespace, namespace, domain)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ServiceNames returns all spellings of a Service of a namespace. In ownNamespace its name alone is one.
func ServiceNames(name, namespace, ownNamespace, domain string) []string {
	full := name + "." + namespace
	all := []string{full, full + ".svc", full + ".svc." + clusterDomain(domain)}
	if namespace == ownNamespace {
		all = append(all, name)
	}
	return all
}
