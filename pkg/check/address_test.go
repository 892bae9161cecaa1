// SPDX-License-Identifier: Apache-2.0

package check

import (
	"net"
	"testing"
)

func TestPickAddress(t *testing.T) {
	addr := func(s string) net.Addr {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		n.IP = ip
		return n
	}
	tests := map[string]struct {
		have []net.Addr
		want string
	}{
		"loopback only":  {[]net.Addr{addr("127.0.0.1/8"), addr("::1/128"), addr("169.254.1.1/16"), addr("fe80::1/64")}, ""},
		"IPv4 preferred": {[]net.Addr{addr("127.0.0.1/8"), addr("2001:db8::1/64"), addr("192.0.2.7/24")}, "192.0.2.7"},
		"IPv6 only":      {[]net.Addr{addr("fe80::1/64"), addr("2001:db8::1/64")}, "2001:db8::1"},
		"none":           {nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := pickAddress(tc.have); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
