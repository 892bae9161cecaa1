// SPDX-License-Identifier: Apache-2.0

package gateway

import "net/netip"

// ClientOf returns what counts as one client of an address "host:port": an IPv4 address, or an IPv6 network of
// 64 bits, which a host usually has to itself. Other addresses, such as those of Unix sockets, count as one.
func ClientOf(address string) netip.Prefix {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	a, bits := ap.Addr().Unmap(), 32
	if a.Is6() {
		a, bits = a.WithZone(""), 64
	}
	p, _ := a.Prefix(bits)
	return p
}
