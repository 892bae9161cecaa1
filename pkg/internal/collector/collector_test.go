// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

var tuning = Tuning{Percent: 100, Extra: 64 << 20, Room: 512 << 20}

func TestAllowed(t *testing.T) {
	tree := func(files ...string) string {
		root := t.TempDir()
		for i := 0; i < len(files); i += 2 {
			path := filepath.Join(root, files[i])
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	enough, scarce := fmt.Sprintln(tuning.Room), fmt.Sprintln(tuning.Room-1)
	const cgroup = "proc/self/cgroup"
	for name, tc := range map[string]struct {
		env, root string
		want      bool
	}{
		"no cgroup":            {root: "/nonexistent", want: true},
		"no limit":             {root: tree(cgroup, "0::/\n", "sys/fs/cgroup/memory.max", "max\n"), want: true},
		"high limit":           {root: tree(cgroup, "0::/\n", "sys/fs/cgroup/memory.max", enough), want: true},
		"low limit":            {root: tree(cgroup, "0::/\n", "sys/fs/cgroup/memory.max", scarce)},
		"of a unit":            {root: tree(cgroup, "0::/system.slice/a.service\n", "sys/fs/cgroup/system.slice/a.service/memory.max", scarce)},
		"of a slice":           {root: tree(cgroup, "0::/system.slice/a.service\n", "sys/fs/cgroup/system.slice/memory.max", scarce, "sys/fs/cgroup/system.slice/a.service/memory.max", "max\n")},
		"of another unit":      {root: tree(cgroup, "0::/a\n", "sys/fs/cgroup/b/memory.max", scarce), want: true},
		"version 1":            {root: tree(cgroup, "5:cpu,memory:/docker/1\n4:pids:/x\n", "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", scarce)},
		"version 1, container": {root: tree(cgroup, "5:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", scarce)},
		"version 1, no limit":  {root: tree(cgroup, "5:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"), want: true},
		"collector is set up":  {env: "GOGC", root: "/nonexistent"},
		"limit is set":         {env: "GOMEMLIMIT", root: "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string {
				if name == tc.env {
					return "100"
				}
				return ""
			}
			if got := tuning.Allowed(getenv, tc.root); got != tc.want {
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
		testutil.Eventually(t, time.Minute, func() error {
			runtime.GC()
			if got := goal(); got < want-want/10 || got > want+want/10 {
				return fmt.Errorf("%s: the collector runs at %d MiB, want about %d", what, got>>20, want>>20)
			}
			return nil
		})
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
