// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
)

// TestHeedLimit: the collector keeps the process below a limit of its cgroup, with room for what Go does not count; the
// administrator's GOMEMLIMIT stands, and without a limit there is none.
func TestHeedLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	const limit = 1 << 30
	for name, tc := range map[string]struct {
		max, env string
		heeds    bool
	}{
		"limit":      {max: strconv.Itoa(limit), heeds: true},
		"no limit":   {max: "max"},
		"GOMEMLIMIT": {max: strconv.Itoa(limit), env: "500MiB"},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": tc.max + "\n"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stop := heedLimit(func(string) string { return tc.env }, root)
		got := debug.SetMemoryLimit(-1)
		stop()
		if tc.heeds != (got > limit/2 && got < limit) || !tc.heeds && got != before {
			t.Errorf("%s: the collector's limit is %d", name, got)
		}
		if left := debug.SetMemoryLimit(-1); left != before {
			t.Errorf("%s: %d is left of it, of %d", name, left, int64(math.MaxInt64))
		}
	}
}
