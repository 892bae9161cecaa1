// SPDX-License-Identifier: Apache-2.0

package destinations

import "net/netip"

var (
	wellKnownNAT64 = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	localNAT64     = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour      = netip.MustParsePrefix("2002::/16")       // RFC 3056
	compatible     = netip.MustParsePrefix("::/96")           // RFC 4291
	translated     = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 7915
)

// embeddedIPv4 returns the IPv4 addresses to which a network may translate an IPv6 address,
// so that a rule against one of them holds for that form, too. Mapped addresses are compared
// as IPv4 ones anyway.
func embeddedIPv4(a netip.Addr) []netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return nil
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case wellKnownNAT64.Contains(a), translated.Contains(a):
		return []netip.Addr{last}
	case sixToFour.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case compatible.Contains(a):
		return notZero(last) // :: and ::1 are IPv6 addresses of their own
	case localNAT64.Contains(a):
		found := []netip.Addr{last}
		if b[8] == 0 { // the forms of shorter prefixes, which leave this byte out
			found = append(found, netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
				netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), netip.AddrFrom4([4]byte{b[9], b[10], b[11], b[12]}))
		}
		return notZero(found...) // all but one are at the wrong place, most often in front of the address
	}
	return nil
}

// notZero leaves out addresses of 0.0.0.0/8.
func notZero(all ...netip.Addr) (rest []netip.Addr) {
	for _, a := range all {
		if a.As4()[0] != 0 {
			rest = append(rest, a)
		}
	}
	return rest
}
