// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"strings"
	"testing"
)

// TestNetcatArgs: the flags for a proxy are those of the variant of nc that prints the help. Variants without proxies have none.
func TestNetcatArgs(t *testing.T) {
	for name, c := range map[string]struct{ help, socks5, connect string }{
		"OpenBSD, of Debian": {"OpenBSD netcat (Debian patchlevel 1.219-1)\n\t\t-X proto\tProxy protocol: \"4\", \"5\" (SOCKS) or \"connect\"\n\t\t-x addr[:port]\tSpecify proxy address and port\n",
			"-N -X 5 -x 127.0.0.1:1", "-N -X connect -x 127.0.0.1:1"},
		"OpenBSD, the first lines": {"usage: nc [-46cDdFhklNnrStUuvz] [-C certfile]\n\t  [-X proxy_protocol] [-x proxy_address[:port]] [-Z peercertfile]\n",
			"-N -X 5 -x 127.0.0.1:1", "-N -X connect -x 127.0.0.1:1"},
		"Ncat": {"Ncat 7.93 ( https://nmap.org/ncat )\n  -x, --hex-dump <filename>  Dump session data as hex to file\n      --proxy <addr[:port]>  Specify address of host to proxy through\n      --proxy-type <type>    Specify proxy type (\"http\", \"socks4\", \"socks5\")\n",
			"--proxy 127.0.0.1:1 --proxy-type socks5", "--proxy 127.0.0.1:1 --proxy-type http"},
		"traditional": {"[v1.10-47]\nconnect to somewhere:\tnc [-options] hostname port[s] [ports] ... \n\t-w secs\t\ttimeout for connects and final net reads\n", "", ""},
		"BusyBox":     {"nc: invalid option -- 'h'\nUsage: nc [-iN] [-wN] [-l] [-p PORT] [-f FILE|IPADDR PORT] [-e PROG]\n", "", ""},
	} {
		args := netcatArgs(c.help)
		if args == nil {
			if c.socks5 != "" {
				t.Errorf("%s: no flags for a proxy", name)
			}
			continue
		}
		for protocol, want := range map[string]string{NetcatSOCKS5: c.socks5, NetcatCONNECT: c.connect} {
			if got := strings.Join(args(protocol, "127.0.0.1:1"), " "); got != want {
				t.Errorf("%s, protocol %s: %q, want %q", name, protocol, got, want)
			}
		}
	}
}
