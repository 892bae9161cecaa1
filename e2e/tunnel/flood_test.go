// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

const (
	// floodVariable makes the test binary an attacker of the agents' port that it names.
	floodVariable = "FAIRLEAD_TEST_FLOOD"
	// floodConns is the number of the attacker's connections at a time.
	floodConns = 8
	floodTime  = 2 * time.Second
	// floodRounds is how often idle, attack and control take turns, so that what else
	// the machine does meets all three.
	floodRounds = 3
)

// flooded is what an attacker reports.
type flooded struct {
	Conns int64 // that were made, each until the server ended it
	Calls int64 // that were written
	Open  int64 // connections that the server did not end
}

// flood opens and resets streams without a token, on so many connections at a time, and
// connects again where it is cut off.
func flood(addr string) (f flooded) {
	end := time.Now().Add(floodTime)
	var wg sync.WaitGroup
	for range floodConns {
		wg.Go(func() {
			for time.Now().Before(end) {
				floodOnce(addr, end, &f)
			}
		})
	}
	wg.Wait()
	return f
}

func floodOnce(addr string, end time.Time, f *flooded) {
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return
	}
	defer func() { _ = nc.Close() }()
	atomic.AddInt64(&f.Conns, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, nc) }()
	var out, block bytes.Buffer
	enc, fr := hpack.NewEncoder(&block), http2.NewFramer(&out, nil)
	out.WriteString(http2.ClientPreface)
	_ = fr.WriteSettings()
	// At least once: a connection without a call stays for the time for handshakes.
	for id := uint32(1); id == 1 || time.Now().Before(end); {
		for range 100 {
			block.Reset()
			for _, field := range [][2]string{{":method", "POST"}, {":path", "/AgentService/Connect"}, {":scheme", "http"}, {":authority", "a"}, {"agentid", "flood"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
			}
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
			_ = fr.WriteRSTStream(id, http2.ErrCodeCancel)
			id += 2
		}
		if _, err := nc.Write(out.Bytes()); err != nil {
			return
		}
		atomic.AddInt64(&f.Calls, 100)
		out.Reset()
	}
	select {
	case <-ended:
	case <-time.After(startBound):
		atomic.AddInt64(&f.Open, 1)
	}
}

// attack runs the attacker as a process of its own, and dials meanwhile.
func (p *pair) attack(t *testing.T, addr string, took *[]time.Duration) (f flooded) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), floodVariable+"="+addr)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.dials(t, took)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("attacker: %v", err)
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatalf("attacker: %v in %q", err, out.String())
	}
	return f
}

// dials opens one connection after the other for as long as an attack lasts, and adds how
// long each took until it had carried bytes there and back. Each has to succeed.
func (p *pair) dials(t *testing.T, took *[]time.Duration) {
	t.Helper()
	dial := p.dialer()
	for end := time.Now().Add(floodTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), startBound)
		c, err := dial(ctx, p.echo)
		if err == nil {
			err = roundTrip(c)
			_ = c.Close()
		}
		cancel()
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		*took = append(*took, time.Since(start))
	}
}

// TestFloodOfStrangers checks 8 connections of peers without a token that each open and
// reset streams, and reconnect when they are cut off. The server cuts them all off and
// counts them. Dials succeed, and the agent stays connected. The test bounds and prints
// the duration of dials: when idle, under the attack, and under the same attack on another server,
// which takes as much of the machine.
func TestFloodOfStrangers(t *testing.T) {
	testutil.Full(t, "floods the server for a long time")
	const good = "good"
	o := options{mode: "grpc", noClientCA: true, agentFlags: []string{"--service-account-token-path=" + write(t, good)},
		serverFlags: []string{"--agent-namespace=kube-system", "--agent-service-account=konnectivity-agent",
			"--authentication-audience=" + audience, "--kubeconfig=" + reviewer(t, good)}}
	p, other := startPair(t, o), startPair(t, o)
	var idle, attacked, control []time.Duration
	var ours, theirs flooded
	add := func(sum *flooded, f flooded) {
		sum.Conns, sum.Calls, sum.Open = sum.Conns+f.Conns, sum.Calls+f.Calls, sum.Open+f.Open
	}
	for range floodRounds {
		p.dials(t, &idle)
		add(&ours, p.attack(t, p.agents, &attacked))
		add(&theirs, p.attack(t, other.agents, &control))
	}
	if ours.Open > 0 || ours.Conns < floodConns*floodRounds {
		t.Errorf("of %d connections the server ended all but %d, want all of %d and more", ours.Conns, ours.Open, floodConns*floodRounds)
	}
	n, err := metric(p.serverHealth, `fairlead_tunnel_server_agents_refused_total{reason="flood"}`)
	if err != nil || n < floodConns {
		t.Errorf("%v floods are counted, %v, want one for each connection that had the time for it", n, err)
	}
	if err := backends(p, 1)(); err != nil {
		t.Error(err)
	}
	ia, aa, ca := median(idle), median(attacked), median(control)
	t.Logf("dial p50: idle %v (%d dials), attack %v (%d), same attack on another server %v (%d); attack/control %.2f, control/idle %.2f",
		ia, len(idle), aa, len(attacked), ca, len(control), float64(aa)/float64(ca), float64(ca)/float64(ia))
	if aa > floodFactor*ca {
		t.Errorf("a dial takes %v under the attack and %v under the same attack on another server, want at most %d times that", aa, ca, floodFactor)
	}
	tunneltest.Unavailable(t, slices.Max(attacked))
	t.Logf("dial p99: idle %v, attack %v, control %v", high(idle), high(attacked), high(control))
	t.Logf("attacker on this server %+v, %v counted as flood; on the other one %+v", ours, n, theirs)
}

// floodFactor bounds how much slower dials are under an attack on their own server than under
// one on another server. It is loose: what is meant is some two times.
const floodFactor = 6

func median(all []time.Duration) time.Duration { return quantile(all, 2) }
func high(all []time.Duration) time.Duration   { return quantile(all, 100) }

// quantile is the longest but a part of one in n.
func quantile(all []time.Duration, n int) time.Duration {
	slices.Sort(all)
	return all[len(all)-1-len(all)/n].Round(10 * time.Microsecond)
}

// reviewer is a kubeconfig for an API server that knows one token.
func reviewer(t *testing.T, good string) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || !strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":%t,"audiences":[%q],"user":{"username":"system:serviceaccount:kube-system:konnectivity-agent"}}}`,
			review.Spec.Token == good, audience)
	}))
	t.Cleanup(s.Close)
	ca := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return write(t, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "`+s.URL+`", certificate-authority: "`+ca+`"}}]
users: [{name: u, user: {token: unused}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`)
}
