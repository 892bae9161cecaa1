// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil/cmdutiltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	cmdutiltest.Parse(t, o.AddFlags, args...)
	return o
}

// TestFlagsAreChecked: a value that makes no sense is refused with what it is about.
func TestFlagsAreChecked(t *testing.T) {
	cmdutiltest.Check(t, func(arg string) error { return parse(t, arg).Validate() }, map[string]string{
		"--ca-cert=/absent/ca":                                         "--ca-cert: stat /absent/ca",
		"--agent-id=" + strings.Repeat("i", 256):                       "",
		"--agent-id=" + strings.Repeat("i", 257):                       "--agent-id",
		"--proxy-server-port=0":                                        "port",
		"--health-server-port=-1":                                      "port",
		"--agent-cert=/a":                                              "--agent-key",
		"--ca-cert=/does/not/exist":                                    "/does/not/exist",
		"--sync-interval=1m":                                           "sync interval",
		"--server-count-source=both":                                   "--server-count-source",
		"--agent-identifiers=mac=1":                                    "mac",
		"--agent-identifiers=%zz":                                      "address",
		"--agent-identifiers=host=a&ipv4=192.0.2.1&default-route=true": "",
		"--enable-contention-profiling":                                "--enable-profiling",
		"--links=-1":                                                   "--links",
		"--links=65":                                                   "--links",
		"--allow-destinations=10.0.0.0/33":                             "10.0.0.0/33",
		"--deny-destinations=host:99999":                               "99999",
		"--deny-destinations=":                                         "",
		"--deny-destinations=10.0.0.256":                               "10.0.0.256",
		"--max-pending-dials=0":                                        "--max-pending-dials",
		"--max-connections=-1":                                         "--max-connections",
		"--dial-timeout=0":                                             "--dial-timeout",
		"--peer-buffer=1":                                              "--peer-buffer",
	})
}

// TestIdentifiersThatMatchNothing: the agent names each of them when it starts, and starts.
func TestIdentifiersThatMatchNothing(t *testing.T) {
	for ids, want := range map[string]int{"ipv4=$(HOST_IP)&host=a&default-route=yes": 2, "ipv4=192.0.2.1&host=A&default-route=true": 0, "": 0} {
		o := parse(t, "--agent-identifiers="+ids)
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", ids, err)
		}
		var lines []string
		o.warnOfIdentifiers(logtest.New(func(_ int, line string) { lines = append(lines, line) }))
		if len(lines) != want || want > 0 && !strings.Contains(strings.Join(lines, ""), "$(HOST_IP)") {
			t.Errorf("%s: %q, want %d lines", ids, lines, want)
		}
	}
}

// TestWarningIsLogged: the program's log has the warning about identifiers.
func TestWarningIsLogged(t *testing.T) {
	var out bytes.Buffer
	defer klog.LogToStderr(true)
	defer klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	klog.SetOutput(&out)
	o := parse(t, "--proxy-server-host=127.0.0.1", "--agent-identifiers=ipv4=$(HOST_IP)")
	_, err := o.config(t.Context(), agent.NewMetrics())
	klog.Flush()
	if err != nil || !strings.Contains(out.String(), "$(HOST_IP)") {
		t.Errorf("logged %q, error %v", out.String(), err)
	}
}

// TestFlagsReachTheAgent: what flags say arrives in the agent's configuration, and
// what the agent is known by may be dialed though it is on loopback.
func TestFlagsReachTheAgent(t *testing.T) {
	o := parse(t, "--proxy-server-host=::1", "--proxy-server-port=99", "--agent-id=me", "--agent-identifiers=ipv4=127.0.0.1&host=Self",
		"--keepalive-time=1m", "--dial-timeout=2s", "--peer-buffer=2000000", "--total-buffer=3000000", "--links=3", "--max-connections=4",
		"--max-pending-dials=5", "--sync-forever", "--link=upstream", "--slow-receivers=pause")
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	c, err := o.config(t.Context(), agent.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"address": c.Address == "[::1]:99" && c.AgentID == "me",
		"times":   c.KeepaliveTime == time.Minute && c.DialTimeout == 2*time.Second,
		"buffers": c.PeerBuffer == 2_000_000 && c.TotalBuffer == 3_000_000 && c.PauseSlow,
		"limits":  c.Links == 3 && c.MaxConns == 4 && c.MaxDials == 5,
		"rest":    c.SyncForever && c.Protocol == settings.ProtocolUpstream && c.Token == nil,
	} {
		if !ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for address, allowed := range map[string]bool{"127.0.0.1": true, "self": true, "127.0.0.2": false, "169.254.169.254": false, "192.0.2.1": true} {
		grant, err := c.Policy.CheckName(address, 80)
		if err == nil && address != "self" {
			err = c.Policy.CheckAddr(address+":80", grant)
		}
		if (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", address, err, allowed)
		}
	}
}

// TestServerHostInBrackets: an IPv6 address in brackets is the address that is connected to
// and that the server's certificate is checked for.
func TestServerHostInBrackets(t *testing.T) {
	c, err := parse(t, "--proxy-server-host=[::1]", "--proxy-server-port=99").config(t.Context(), agent.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.TLS()
	if err != nil || c.Address != "[::1]:99" || cfg.ServerName != "::1" {
		t.Errorf("address %q, server name %q, %v", c.Address, cfg.ServerName, err)
	}
}

// TestDestinationsReachTheAgent: with --allow-destinations nothing else is dialed, and nothing that
// --deny-destinations has.
func TestDestinationsReachTheAgent(t *testing.T) {
	o := parse(t, "--proxy-server-host=::1", "--allow-destinations=192.0.2.0/24:443,web.svc", "--deny-destinations=192.0.2.9")
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	c, err := o.config(t.Context(), agent.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct {
		host    string
		port    int
		allowed bool
	}{{"192.0.2.1", 443, true}, {"192.0.2.1", 80, false}, {"192.0.2.9", 443, false}, {"198.51.100.1", 443, false}, {"web.svc", 80, true}, {"web", 80, false}} {
		grant, err := c.Policy.CheckName(d.host, d.port)
		if err == nil && net.ParseIP(d.host) != nil {
			err = c.Policy.CheckAddr(net.JoinHostPort(d.host, strconv.Itoa(d.port)), grant)
		}
		if err == nil && net.ParseIP(d.host) == nil && grant != destinations.GrantNamed {
			err = errors.New("its address decides")
		}
		if (err == nil) != d.allowed {
			t.Errorf("%s:%d: %v, want allowed %v", d.host, d.port, err, d.allowed)
		}
	}
}
