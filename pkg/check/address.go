package check

import "net"

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
