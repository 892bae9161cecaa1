// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Host is the value of a flag for a host or an address to bind to. An IPv6 address may be in
// brackets, as in a URL.
func Host(value string) string {
	if inner, ok := strings.CutPrefix(value, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			if a, err := netip.ParseAddr(inner); err == nil && a.Is6() {
				return inner
			}
		}
	}
	return value
}

// Address is host:port of a host as Host takes it.
func Address(host string, port int) string {
	return net.JoinHostPort(Host(host), strconv.Itoa(port))
}
