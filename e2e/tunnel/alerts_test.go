// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestAlertsFire: a real Prometheus fires each of these alerts in a real fault of servers and agents of this test. The
// test of the same name in e2e/suite has the faults of a cluster.
func TestAlertsFire(t *testing.T) {
	testutil.Full(t, "runs Prometheus until alerts fire")
	promtest.Require(t)
	targets := filepath.Join(t.TempDir(), "targets.json")
	first, second := startShared(t) // for the last fault: that takes a minute
	a := &alerts{targets: targets, jobs: map[string][]string{}, shared: []*pair{first, second}}
	a.scrape(t)
	a.Server = promtest.Start(t, promtest.ImpatientRules(t), []promtest.Object{{
		"job_name": "files", "file_sd_configs": []promtest.Object{{"files": []string{targets}, "refresh_interval": "1s"}},
	}})
	for _, f := range []promtest.Fault{
		{Name: "certificates end soon", Cause: a.soon, Alerts: []string{"KonnectivityCertificateExpires"}},
		{Name: "two servers do not know of each other", Cause: a.twoServers, Alerts: []string{"KonnectivityAgentsUneven", "KonnectivityServerCountMismatch"}},
		{Name: "tokens are wrong, and reviews fail", Cause: a.badReviews, Alerts: []string{"KonnectivityAgentsRefused", "KonnectivityTokenReviewsFail"}},
		{Name: "a destination does not answer", Cause: a.silentDestination, Alerts: []string{"KonnectivityPendingDials"}},
		{Name: "a destination answers late", Cause: a.lateDestination, Alerts: []string{"KonnectivityDialSlow"}},
		{Name: "the server has few file descriptors left", Cause: a.fewDescriptors, Alerts: []string{"KonnectivityDescriptorsLow"}},
		{Name: "the server has no file descriptors left", Cause: a.noDescriptors, Again: func(context.Context, *testing.T) { a.knock() }, Alerts: []string{"KonnectivityTurnedAway"}},
		{Name: "clients do not read", Cause: a.stalledClients, Alerts: []string{"KonnectivityBufferedBytesHigh", "KonnectivityConnectionsEvicted"}},
		{Name: "two servers have the same ID", Cause: a.sharedID, Alerts: []string{"KonnectivityServersShareID"}},
	} {
		t.Run(f.Name, func(t *testing.T) {
			a.Try(t.Context(), t, f)
			t.Cleanup(func() { a.jobs = map[string][]string{}; a.scrape(t) }) // the alerts of one fault are not those of the next
		})
	}
}

// alerts has the Prometheus of a test, which scrapes what the file of targets names.
type alerts struct {
	*promtest.Server
	targets string
	jobs    map[string][]string // addresses of each job
	knock   func()              // opens connections to a server without descriptors
	shared  []*pair             // see startShared
}

// scrape has Prometheus scrape the pairs' programs, too.
func (a *alerts) scrape(t *testing.T, pairs ...*pair) {
	t.Helper()
	for _, p := range pairs {
		for job, url := range map[string]string{"konnectivity-server": p.serverHealth, "konnectivity-agent": p.agentHealth} {
			a.jobs[job] = append(a.jobs[job], strings.TrimPrefix(url, "http://"))
		}
	}
	groups := []promtest.Object{}
	for job, addresses := range a.jobs {
		groups = append(groups, promtest.Object{"targets": addresses, "labels": map[string]string{"job": job}})
	}
	data, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.targets+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.targets+".new", a.targets); err != nil { // Prometheus never reads half of it
		t.Fatal(err)
	}
}

// start starts a pair that Prometheus scrapes. It waits until it has: an increase needs a value of before.
func (a *alerts) start(ctx context.Context, t *testing.T, o options) *pair {
	t.Helper()
	if o.mode == "" {
		o.mode = "http-connect"
	}
	p := startPair(t, o)
	a.scrape(t, p)
	a.scraped(ctx, t, p.serverHealth)
	return p
}

// scraped waits until a program has been scraped twice.
func (a *alerts) scraped(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	daemontest.Eventually(t, startBound, func() error {
		var answer struct {
			Result []struct{ Value [2]any } `json:"result"`
		}
		if err := a.Get(ctx, &answer, "query", "query", `count_over_time(process_open_fds{instance="`+strings.TrimPrefix(url, "http://")+`"}[1m]) > 1`); err != nil {
			return err
		}
		if len(answer.Result) == 0 {
			return fmt.Errorf("Prometheus has not scraped %s twice", url)
		}
		return nil
	})
}

// soon: the certificates of tests are valid for an hour.
func (a *alerts) soon(ctx context.Context, t *testing.T) { a.start(ctx, t, options{}) }

// twoServers: each counts itself only, and the second one has more agents.
func (a *alerts) twoServers(ctx context.Context, t *testing.T) {
	t.Helper()
	a.start(ctx, t, options{})
	a.start(ctx, t, options{}).startAgent()
}

// startShared starts two servers of one ID behind one address, with an agent that looks for two servers there. A server
// counts such an agent when it has run for a minute.
func startShared(t *testing.T) (first, second *pair) {
	t.Helper()
	p := startPair(t, options{mode: "http-connect", serverFlags: []string{"--server-count=2"}})
	ports := daemontest.Ports(t, 3)
	daemontest.Start(t, nil, ours.server(), "--mode=http-connect", "--uds-name="+daemontest.SocketPath(t), "--server-port=0", "--server-id=test", "--server-count=2",
		"--cluster-cert="+p.files.Cert, "--cluster-key="+p.files.Key, "--cluster-ca-cert="+p.files.CA, "--agent-bind-address=127.0.0.1", "--agent-port="+ports[0],
		"--health-bind-address=127.0.0.1", "--health-port="+ports[1], "--admin-port="+ports[2])
	health := "http://127.0.0.1:" + ports[1]
	daemontest.Eventually(t, startBound, func() error { return get(health + "/healthz") })
	balancer := tunneltest.NewProxy(t, p.agents)
	_, port, err := net.SplitHostPort(balancer.Addr)
	if err != nil {
		t.Fatal(err)
	}
	_, agent := p.launchAgent("--proxy-server-port=" + port)
	daemontest.Eventually(t, startBound, func() error { return get(agent + "/readyz") })
	balancer.To("127.0.0.1:" + ports[0])
	return p, &pair{serverHealth: health, agentHealth: agent}
}

// sharedID: each server counts itself, and both have one ID.
func (a *alerts) sharedID(ctx context.Context, t *testing.T) {
	t.Helper()
	a.scrape(t, a.shared...)
	for _, p := range a.shared {
		a.scraped(ctx, t, p.serverHealth)
	}
}

// badReviews: agents have wrong tokens, and then the API server that reviews those of others cannot be reached.
func (a *alerts) badReviews(ctx context.Context, t *testing.T) {
	t.Helper()
	cp := daemontest.StartControlPlane(t)                    //nolint:contextcheck // it ends with the test
	good := tokenFile(t, cp, "konnectivity-agent", audience) //nolint:contextcheck // as above
	direct, err := os.ReadFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(direct)
	if err != nil {
		t.Fatal(err)
	}
	var network *tunneltest.Proxy
	for _, cluster := range config.Clusters {
		network = tunneltest.NewProxy(t, strings.TrimPrefix(cluster.Server, "https://"))
		cluster.Server = "https://" + network.Addr
	}
	through, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	p := a.start(ctx, t, options{
		noClientCA: true, agentFlags: []string{"--service-account-token-path=" + good},
		serverFlags: append(reviewFlags(cp), "--kubeconfig="+write(t, string(through)), "--token-review-interval=1s"),
	})
	for range 4 {
		p.launchAgent("--service-account-token-path=" + write(t, spoilt(t, good)))
	}
	if err := backends(p, 1)(); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, startBound, func() error {
		n, err := metric(p.serverHealth, `fairlead_tunnel_server_agents_refused_total{reason="token"}`)
		if err == nil && n < 4 {
			err = fmt.Errorf("%v agents are refused", n)
		}
		return err
	})
	network.Refuse(true)
	network.Cut()
}

// silentDestination: dials wait until the agent gives up.
func (a *alerts) silentDestination(ctx context.Context, t *testing.T) {
	t.Helper()
	p := a.start(ctx, t, options{})
	p.dialMany(ctx, tunneltest.BlackHole(t))
}

// lateDestination: dials wait until the destination has room, and the kernel sends what opens a connection once more.
func (a *alerts) lateDestination(ctx context.Context, t *testing.T) {
	t.Helper()
	p := a.start(ctx, t, options{})
	address, accept := tunneltest.FullBacklog(t)
	p.dialMany(ctx, address)
	time.Sleep(2 * time.Second)
	accept()
}

// dialMany begins many dials.
func (p *pair) dialMany(ctx context.Context, address string) {
	for range 150 {
		go func() {
			if c, err := p.dialer()(ctx, address); err == nil {
				_ = c.Close()
			}
		}()
	}
}

// fewDescriptors: clients leave some. A program without any cannot count them.
func (a *alerts) fewDescriptors(ctx context.Context, t *testing.T) {
	t.Helper()
	p := a.start(ctx, t, options{})
	used := descriptors(t, p.server)
	limit(t, p.server.PID(), uint64(used)+100)
	p.occupy(t, 80+used/4) // of used+100, more than 80 %
}

// noDescriptors: clients use up all. The counter of those that are refused begins with the first of them, so that more
// have to come later.
func (a *alerts) noDescriptors(ctx context.Context, t *testing.T) {
	t.Helper()
	p := a.start(ctx, t, options{})
	limit(t, p.server.PID(), uint64(descriptors(t, p.server)+30))
	a.knock = func() { p.occupy(t, 40) }
}

// occupy opens silent connections, at most n.
func (p *pair) occupy(t *testing.T, n int) {
	t.Helper()
	for range n {
		c, err := net.DialTimeout("unix", p.socket, time.Second)
		if err != nil {
			return // the server is to accept some first
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// stalledClients: an upstream agent sends what clients have asked for, however much of it waits. 22 connections fill most of --total-buffer and stay: the
// alert on buffered bytes has to last for some scrapes. Two more send without an end, and have connections reset until they are reset themselves.
func (a *alerts) stalledClients(ctx context.Context, t *testing.T) {
	t.Helper()
	const filling, endless, size = 22, 2, 30 << 20
	p := a.start(ctx, t, options{agent: v0_36_0, serverFlags: []string{"--conn-buffer=67108864", "--peer-buffer=0", "--total-buffer=734003200"}})
	send := func(c net.Conn, most int) {
		for block, sent := make([]byte, 1<<20), 0; sent < most; sent += len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c) // until the connection ends
	}
	filled := tunneltest.Target(t, func(c net.Conn) { send(c, size) })
	source := tunneltest.Target(t, func(c net.Conn) { send(c, math.MaxInt) })
	for i := range filling + endless {
		target := filled
		if i >= filling {
			target = source
		}
		c, err := p.dialer()(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}
