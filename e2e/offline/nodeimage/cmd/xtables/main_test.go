// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestDetect(t *testing.T) {
	const rule = "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"
	const hint = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
	for name, tc := range map[string]struct {
		saved map[string]string
		want  string
	}{
		"nothing":                   {nil, "nft"},
		"hint in legacy":            {map[string]string{"legacy iptables-save": hint, "nft iptables-save": rule + rule}, "legacy"},
		"hint in nft":               {map[string]string{"nft iptables-save": hint, "legacy iptables-save": rule + rule}, "nft"},
		"hint for IPv6 only":        {map[string]string{"legacy ip6tables-save": ":KUBE-KUBELET-CANARY - [0:0]\n"}, "legacy"},
		"more rules in legacy":      {map[string]string{"legacy iptables-save": rule + rule, "nft iptables-save": rule}, "legacy"},
		"as many rules in both":     {map[string]string{"legacy iptables-save": rule, "nft iptables-save": rule}, "nft"},
		"a rule on the first line":  {map[string]string{"legacy iptables-save": "-A X\n"}, "legacy"},
		"rules of IPv6 count, too.": {map[string]string{"legacy ip6tables-save": rule}, "legacy"},
	} {
		t.Run(name, func(t *testing.T) {
			got := detect(func(mode, command string) string { return tc.saved[mode+" "+command] })
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
