// SPDX-License-Identifier: Apache-2.0

// Package identifiers knows how agents' identifiers are compared with destinations, and
// which of them match none. Server and agent both warn of those: an agent with such an
// identifier connects and is ready, and never gets the connections it is meant for.
package identifiers

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Canonical returns the form in which hosts are compared: an address as Go writes it,
// an IPv4 address in IPv6 form as IPv4, and a name in lower case.
func Canonical(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().String()
	}
	return strings.ToLower(host)
}

// kinds are in the order in which problems are listed.
var kinds = []struct {
	name  string
	check func(value string) string
}{
	{"ipv4", address}, {"ipv6", address}, {"host", host}, {"cidr", cidr}, {"default-route", boolean},
}

// maxShown bounds what is shown of a value, in bytes.
const maxShown = 80

// Problems says what is wrong with each identifier that matches no destination.
func Problems(ids url.Values) (problems []string) {
	for _, k := range kinds {
		for _, value := range ids[k.name] {
			var why string
			switch {
			case value == "":
				why = "has no value"
			case strings.Contains(value, "$(") || strings.Contains(value, "${"):
				why = "names a variable that is not set"
			default:
				why = k.check(value)
			}
			if why != "" {
				problems = append(problems, fmt.Sprintf("%s=%s: %s", k.name, shown(value), why))
			}
		}
	}
	return problems
}

// shown is a value as it can go into a log: what comes from an agent may be anything.
func shown(value string) string {
	if value == "" {
		return ""
	}
	return strconv.Quote(value[:min(len(value), maxShown)])
}

func address(value string) string {
	if _, err := netip.ParseAddr(value); err == nil {
		return ""
	}
	return "is not an IP address" + hint(value)
}

func host(value string) string {
	if _, err := netip.ParseAddr(value); err == nil || !strings.ContainsAny(value, ",:/[] \t") {
		return ""
	}
	return "is not a host name" + hint(value)
}

// hint says what to do about some mistakes.
func hint(value string) string {
	if strings.Contains(value, ",") {
		return ": repeat the identifier for each value"
	}
	if _, _, err := net.SplitHostPort(value); err == nil {
		return ": remove the port"
	}
	if strings.ContainsAny(value, "[]") {
		return ": remove the brackets"
	}
	return ""
}

func cidr(value string) string {
	if _, err := netip.ParsePrefix(value); err == nil {
		return "no strategy compares ranges with destinations: name the addresses with ipv4 or ipv6"
	}
	return "is not a CIDR, and no strategy compares ranges with destinations"
}

func boolean(value string) string {
	if _, err := strconv.ParseBool(value); err == nil {
		return ""
	}
	return "is neither true nor false"
}
