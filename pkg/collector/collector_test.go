package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

var tuning = Tuning{Percent: 100, Extra: 64 << 20, Room: 512 << 20}

func TestAllowed(t *testing.T) {
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct {
		env, file string
		want      bool
	}{
		"no cgroup":           {file: "/nonexistent", want: true},
		"no limit":            {file: file("max\n"), want: true},
		"high limit":          {file: file(fmt.Sprintln(tuning.Room)), want: true},
		"low limit":           {file: file(fmt.Sprintln(tuning.Room - 1))},
		"collector is set up": {env: "GOGC", file: "/nonexistent"},
		"limit is set":        {env: "GOMEMLIMIT", file: "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string {
				if name == tc.env {
					return "100"
				}
				return ""
			}
			if got := tuning.Allowed(getenv, tc.file); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestPercent: twice the live heap and 64 MiB, whatever the heap.
func TestPercent(t *testing.T) {
	for _, live := range []uint64{4 << 20, 50 << 20, 1 << 30, 8 << 30} {
		limit := live + live*uint64(tuning.percent(live))/100
		if want := 2*live + tuning.Extra; limit > want || limit < want-want/50 {
			t.Errorf("with %d MiB alive the collector runs at %d MiB, want %d", live>>20, limit>>20, want>>20)
		}
	}
	if tuning.percent(0) > 1700 {
		t.Error("an empty heap has no limit")
	}
}

// TestStart: the heap at which the collector runs next follows the live heap, also when that grows and shrinks,
// and is Go's own after the end.
func TestStart(t *testing.T) {
	goal := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	// wait for a goal: what sets it runs some time after the collector.
	wait := func(what string, want uint64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			runtime.GC()
			if got := goal(); got > want-want/10 && got < want+want/10 {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("%s: the collector runs at %d MiB, want about %d", what, got>>20, want>>20)
			}
		}
	}
	alive := make([]byte, 200<<20)
	runtime.GC()
	usual := goal()
	stop := tuning.Start()
	wait("200 MiB alive", usual+tuning.Extra)
	more := make([]byte, 200<<20)
	wait("400 MiB alive", usual+(400<<20)+tuning.Extra)
	runtime.KeepAlive(more)
	wait("200 MiB alive again", usual+tuning.Extra)
	stop()
	wait("after the end", usual)
	runtime.KeepAlive(alive)
}
