// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"net"
)

const addressID = "node-address"

// addressCheck fails with what is wrong with the nodes' address. It is only made when there is something to say.
func addressCheck(fault error) Check {
	return Check{ID: addressID, Title: "The nodes' address belongs to this machine", Run: func(context.Context, *Scope) error { return fault }}
}

// HostAddress returns an address of this machine that is neither loopback nor link-local, IPv4 before IPv6; "" if there is none.
func HostAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	return pickAddress(addresses)
}

func pickAddress(addresses []net.Addr) string {
	sixth := ""
	for _, a := range addresses {
		ipNet, ok := a.(*net.IPNet)
		if !ok || !ipNet.IP.IsGlobalUnicast() {
			continue
		}
		if ipNet.IP.To4() != nil {
			return ipNet.IP.String()
		}
		if sixth == "" {
			sixth = ipNet.IP.String()
		}
	}
	return sixth
}
