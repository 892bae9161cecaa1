// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// soakVariable is how long TestSoak goes on. Without it, the test makes a few rounds, as a test of itself.
const soakVariable = "FAIRLEAD_E2E_SOAK"

const (
	// soakWarm is how many rounds a server may need until it has the memory that it keeps.
	soakWarm = 3
	// soakRounds are the fewest rounds whose figures are compared.
	soakRounds = 12
)

// TestSoak: one server lives through faults of its agents, clients and destinations, round after round, and does not grow:
// after each round it has as many descriptors and goroutines as before, and its memory in the last third of the rounds is
// that of the first third.
func TestSoak(t *testing.T) {
	testutil.Full(t, "kills and freezes programs, round after round")
	lasting := soakTime(t)
	p, second, dial, wrap := trafficPair(t, "grpc", 1)
	server := p.server.PID()
	var all []footprint
	for begin := time.Now(); len(all) < soakWarm+1 || time.Since(begin) < lasting; {
		r := &rough{pair: p, second: second, tr: tunneltest.StartTraffic(t, dial, wrap)}
		name, do := soakFault(len(all))
		do(r, t)
		r.tr.Progress()
		r.tr.End()
		r.nothingLeft(t)
		second = r.second
		if t.Failed() {
			t.Fatalf("round %d, %s", len(all), name)
		}
		f := readFootprint(t, p, server)
		t.Logf("round %d, %s: %v", len(all), name, f)
		if all = append(all, f); len(all) > soakWarm && !settles(t, p, server, most(all[:soakWarm])) {
			t.Fatalf("after round %d, %s, the server does not return to %v", len(all)-1, name, most(all[:soakWarm]))
		}
	}
	if p.server.PID() != server {
		t.Error("the server is another process: its figures say nothing")
	}
	all = all[soakWarm:]
	if len(all) < soakRounds {
		t.Logf("%d rounds are too few to compare memory", len(all))
		return
	}
	third := len(all) / 3
	first, last := medianMemory(all[:third]), medianMemory(all[len(all)-third:])
	t.Logf("%d rounds in %v: resident memory %.1f MiB in the first third, %.1f MiB in the last", len(all), lasting, first, last)
	if last > first*1.1+2 {
		t.Errorf("the server's memory grows from %.1f to %.1f MiB", first, last)
	}
}

func soakTime(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv(soakVariable)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("%s: %v", soakVariable, err)
	}
	return d
}

// soakFault is the fault of a round. The slow one, of an agent that is frozen until the server gives it up, comes seldom.
func soakFault(round int) (string, func(*rough, *testing.T)) {
	if round%10 == 9 {
		return "agent frozen", (*rough).freezeAgent
	}
	switch round % 4 {
	case 0:
		return "agents killed", (*rough).killAgents
	case 1:
		return "agent stops for a while", func(r *rough, t *testing.T) { r.stopFor(t, r.agent, 2*time.Second) }
	case 2:
		return "refused and abandoned dials", (*rough).failDials
	}
	return "strangers", func(r *rough, t *testing.T) {
		var took []time.Duration
		if f := r.attack(t, r.agents, &took); f.Calls == 0 || f.Open > 0 {
			t.Errorf("the attack made %d calls, and %d of its connections stay open", f.Calls, f.Open)
		}
	}
}

// failDials dials a port on which nothing listens, and gives up other dials at once.
func (r *rough) failDials(t *testing.T) {
	nothing := "127.0.0.1:" + daemontest.Ports(t, 1)[0]
	dial := r.dialer()
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), startBound)
		to := nothing
		if i%2 == 0 {
			to = r.echo
			time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		}
		c, err := dial(ctx, to)
		cancel()
		if err == nil {
			_ = c.Close()
			if to == nothing {
				t.Fatalf("a dial of %s succeeds, where nothing listens", nothing)
			}
		}
	}
}

// footprint is what a process takes of the machine.
type footprint struct {
	mebibytes               float64
	descriptors, goroutines int
}

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MiB, %d descriptors, %d goroutines", f.mebibytes, f.descriptors, f.goroutines)
}

func readFootprint(t *testing.T, p *pair, pid int) (f footprint) {
	t.Helper()
	goroutines, err := metric(p.serverHealth, "go_goroutines")
	if err != nil {
		t.Fatal(err)
	}
	f.goroutines = int(goroutines)
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	f.descriptors = len(files)
	text, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	f.mebibytes = float64(pages*syscall.Getpagesize()) / (1 << 20)
	return f
}

// most has the greatest of each figure.
func most(all []footprint) (m footprint) {
	for _, f := range all {
		m = footprint{max(m.mebibytes, f.mebibytes), max(m.descriptors, f.descriptors), max(m.goroutines, f.goroutines)}
	}
	return m
}

// settles waits until the server has no more descriptors and goroutines than before. Both agents are connected each time.
func settles(t *testing.T, p *pair, pid int, before footprint) bool {
	t.Helper()
	for end := time.Now().Add(tunneltest.Patience); ; time.Sleep(100 * time.Millisecond) {
		f := readFootprint(t, p, pid)
		if f.descriptors <= before.descriptors && f.goroutines <= before.goroutines+2 { // the request for metrics
			return true
		}
		if time.Now().After(end) {
			t.Logf("the server has %v", f)
			return false
		}
	}
}

func medianMemory(all []footprint) float64 {
	var m []float64
	for _, f := range all {
		m = append(m, f.mebibytes)
	}
	slices.Sort(m)
	return m[len(m)/2]
}
