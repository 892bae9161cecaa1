// SPDX-License-Identifier: Apache-2.0

package destinations

import (
	"net"
	"strconv"
	"testing"
)

// FuzzRules: a list of rules is refused, or judges any destination; who denies all
// addresses and names denies each.
func FuzzRules(f *testing.F) {
	f.Add("10.0.0.0/8:443,[fd00::]/8:443,*.example.org,:22", "10.1.2.3", 443)
	f.Add("127.0.0.0/8,::1/128", "::ffff:127.0.0.1", 80)
	f.Add("[::1", "x", -1)
	f.Fuzz(func(t *testing.T, list, host string, port int) {
		rules, err := ParseRules(list)
		if err != nil {
			return
		}
		p := Policy{Deny: rules}
		grant, err := p.CheckName(host, port)
		if err != nil && grant != GrantNone {
			t.Error("allowed and denied at once")
		}
		addr := net.JoinHostPort(host, strconv.Itoa(port))
		_ = p.CheckAddr(addr, GrantNone)
		all, err := ParseRules("0.0.0.0/0,::/0")
		if err != nil {
			t.Fatal(err)
		}
		if ip := net.ParseIP(host); ip != nil && (&Policy{Deny: all}).CheckAddr(addr, GrantNone) == nil {
			t.Errorf("%s is not denied where everything is", addr)
		}
	})
}
