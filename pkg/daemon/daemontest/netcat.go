// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Netcat is the program nc of this machine, as a client of a proxy. Its variants have different flags.
type Netcat struct {
	path string
	args func(protocol, proxy string) []string
}

// The protocols that [Netcat.Command] takes, as the flag -X of OpenBSD's nc.
const (
	NetcatSOCKS5  = "5"
	NetcatCONNECT = "connect"
)

// FindNetcat returns nc. Without a variant of nc that connects through proxies, it does what [Program] does without the program.
func FindNetcat(t testing.TB) *Netcat {
	t.Helper()
	path := Program(t, "nc")
	help, err := exec.CommandContext(t.Context(), path, "-h").CombinedOutput()
	args := netcatArgs(string(help))
	if args == nil {
		text := fmt.Sprintf("%s knows no proxies (%v): install the Debian package %s, or ncat", path, err, Packages["nc"])
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip("SKIPPED: " + text + ": nothing is proven about it")
	}
	return &Netcat{path, args}
}

// Command returns a command line that connects through a proxy at HOST:PORT. The end of its input ends the client's direction of the
// connection.
func (n *Netcat) Command(protocol, proxy, host, port string) []string {
	return append(append([]string{n.path}, n.args(protocol, proxy)...), host, port)
}

// openBSDProxy finds the flag in the help of OpenBSD's nc.
var openBSDProxy = regexp.MustCompile(`(?m)-x (addr|proxy_address)\b`)

// netcatArgs returns the flags of the variant of nc that prints this help; nil if it knows no proxies.
func netcatArgs(help string) func(protocol, proxy string) []string {
	switch {
	case strings.Contains(help, "--proxy-type"): // Ncat, of Nmap
		return func(protocol, proxy string) []string {
			kind := map[string]string{NetcatSOCKS5: "socks5", NetcatCONNECT: "http"}[protocol]
			return []string{"--proxy", proxy, "--proxy-type", kind}
		}
	case openBSDProxy.MatchString(help):
		return func(protocol, proxy string) []string { return []string{"-N", "-X", protocol, "-x", proxy} }
	}
	return nil
}
