// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil/cmdutiltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// parse returns the options that arguments make, in addition to those for a socket.
func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	cmdutiltest.Parse(t, o.AddFlags, append([]string{"--uds-name=/run/s", "--server-port=0"}, args...)...)
	return o
}

// TestOwnFlagsAreChecked: a value of our own flags that makes no sense is refused
// with the flag's name.
func TestOwnFlagsAreChecked(t *testing.T) {
	cmdutiltest.Check(t, func(arg string) error { return parse(t, arg).Validate() }, map[string]string{
		"--max-links-per-owner=-1":      "--max-links-per-owner",
		"--agent-claims=node-a":         "--agent-claims",
		"--agent-claims=node":           "--agent-namespace",
		"--agent-claims=certificate":    "",
		"--links-per-agent=0":           "--links-per-agent",
		"--links-per-agent=65":          "--links-per-agent",
		"--max-pending-dials=0":         "--max-pending-dials",
		"--max-connections=-1":          "--max-connections",
		"--max-agents=0":                "--max-agents",
		"--max-connections-per-agent=0": "--max-connections-per-agent",
		"--agent-wait=-1s":              "--agent-wait",
		"--agent-wait=0":                "",
		"--token-cache=-1s":             "--token-cache",
		"--non-node-cidrs=10.0.0.1":     "--non-node-cidrs",
		"--token-review-interval=-1s":   "--token-review-interval",
		"--token-review-interval=1ms":   "--token-review-interval",
		"--token-review-interval=0":     "",
		"--link=h3":                     "--link",
		"--slow-receivers=maybe":        "--slow-receivers",
		"--link-window=1000":            "--link-window",
		"--link-max-window=1000":        "--link-max-window",
		"--link-max-window=1073741825":  "--link-max-window",
		"--link-budget=-1":              "--link-budget",
		"--conn-buffer=1":               "--conn-buffer",
		"--peer-buffer=1000":            "--peer-buffer",
		"--total-buffer=-1":             "--total-buffer",
		"--peer-buffer=0":               "",
		"--total-buffer=0":              "",
		"--cluster-ca-cert=/absent/ca":  "--cluster-ca-cert: stat /absent/ca",
		"--kubeconfig=/absent/config":   "--kubeconfig: stat /absent/config",
	})
}

// TestFlagsReachTheServer: what flags and variables say arrives in the server's
// configuration.
func TestFlagsReachTheServer(t *testing.T) {
	t.Setenv(settings.AgentClaims, "node")
	t.Setenv(settings.DefaultRouteAgents, "a,b")
	t.Setenv(settings.NonNodeCIDRs, "10.96.0.1/12,fd00:10::/112")
	o := parse(t, "--keepalive-time=1m", "--frontend-keepalive-time=2m", "--peer-buffer=2000000", "--total-buffer=3000000", "--conn-buffer=70000",
		"--slow-receivers=pause", "--link=upstream", "--max-agents=7", "--max-connections=8", "--max-connections-per-agent=6", "--max-pending-dials=9", "--agent-wait=3s",
		"--backend-dial-timeout=4s", "--proxy-strategies=destHost,default", "--links-per-agent=2", "--server-count=5", "--max-links-per-owner=11")
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	c := o.config(nil, klog.Background())
	for name, ok := range map[string]bool{
		"keepalive": c.AgentKeepalive == time.Minute && c.FrontendKeepalive == 2*time.Minute,
		"buffers":   c.PeerBuffer == 2_000_000 && c.TotalBuffer == 3_000_000 && c.ConnBuffer == 70_000 && c.PauseSlow,
		"limits":    c.MaxAgents == 7 && c.MaxConns == 8 && c.MaxPerAgent == 6 && c.MaxPending == 9 && c.Links == 2 && c.ServerCount == 5,
		"times":     c.AgentWait == 3*time.Second && c.DialTimeout == 4*time.Second,
		"choice":    c.Protocol == settings.ProtocolUpstream && len(c.Strategies) == 2 && c.Strategies[0] == server.StrategyDestHost,
		"claims":    c.Claims.By == "node" && len(c.Claims.DefaultRoute) == 2,
		"ranges":    fmt.Sprint(c.Claims.NonNodeCIDRs) == "[10.96.0.0/12 fd00:10::/112]",
		"owners":    c.MaxPerOwner == 11,
	} {
		if !ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if own := parse(t, "--link=fairlead").config(nil, klog.Background()); own.Protocol != settings.ProtocolFairlead {
		t.Errorf("--link=fairlead does not require Fairlead's protocol: %+v", own)
	}
	if by := parse(t, "--agent-claims=any").config(nil, klog.Background()).Claims.By; by != "any" {
		t.Errorf("the flag does not override the variable: %q", by)
	}
	tokens := parse(t, "--agent-namespace=n", "--agent-service-account=s", "--authentication-audience=a", "--token-review-interval=7m").config(nil, klog.Background())
	if _, ok := tokens.Tokens.(server.TokenReviewer); !ok || tokens.ReviewInterval != 7*time.Minute {
		t.Errorf("tokens of connected agents are reviewed by %T every %v, want every 7m", tokens.Tokens, tokens.ReviewInterval)
	}
	t.Setenv(settings.AgentClaims, "nonsense")
	if err := parse(t).Validate(); err == nil || !strings.Contains(err.Error(), settings.AgentClaims) {
		t.Errorf("a variable that makes no sense: %v", err)
	}
}

// TestCertificatesAreNeeded: a server with which no handshake would succeed does not start,
// and names the flags.
func TestCertificatesAreNeeded(t *testing.T) {
	agents := []string{"--cluster-cert=c", "--cluster-key=k"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--cluster-cert"},
		{[]string{"--cluster-cert=c"}, "--cluster-key"},
		{agents, ""},
		{append(slices.Clip(agents), "--uds-name="), "--server-cert"},
		{append(slices.Clip(agents), "--uds-name=", "--server-cert=c", "--server-key=k"), ""},
		{append(slices.Clip(agents), "--agent-claims=certificate"), "--cluster-ca-cert"},
		{append(slices.Clip(agents), "--agent-claims=certificate", "--cluster-ca-cert=a"), ""},
	} {
		err := parse(t, c.args...).checkCertificates()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
