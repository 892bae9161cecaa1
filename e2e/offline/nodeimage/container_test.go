// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A stage is committed only after containerd has ended: otherwise its database could still be written to.
func TestEndContainerd(t *testing.T) {
	for name, tc := range map[string]struct {
		containerd string
		ends       bool
	}{
		"ends, and stays a zombie": {`touch "$0/up"; exec sleep 60`, true},
		"hangs":                    {`trap "" TERM; echo still busy >"$0/log"; touch "$0/up"; while :; do sleep 0.1; done`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run, log := filepath.Join(dir, "run"), filepath.Join(dir, "log")
			process := exec.Command("bash", "-c", tc.containerd, dir)
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if _, err := os.Stat(filepath.Join(dir, "up")); err == nil {
					break
				}
			}
			for path, text := range map[string]string{filepath.Join(run, "containerd.pid"): fmt.Sprintln(process.Process.Pid), filepath.Join(run, "containerd/socket"): "", filepath.Join(run, "other"): ""} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// As container.sh runs it.
			out, err := exec.Command("bash", "-o", "errexit", "-o", "pipefail", "-c", endContainerd(run, log, 2*time.Second)).CombinedOutput()
			left, _ := filepath.Glob(filepath.Join(run, "*"))
			if tc.ends && (err != nil || len(left) != 1) {
				t.Errorf("%v: %s; left: %v", err, out, left)
			}
			if !tc.ends && (err == nil || !strings.Contains(string(out), "has not ended within 2s") || !strings.Contains(string(out), "still busy")) {
				t.Errorf("a containerd that runs on: %v: %s", err, out)
			}
		})
	}
}

// If containerd does not end or does not start, nothing is committed.
func TestContainerdFails(t *testing.T) {
	for name, fails := range map[string]string{"begins not": "ctr version", "ends not": "kill"} {
		t.Run(name, func(t *testing.T) {
			calls := fakeDocker(t, `case "$*" in exec*"`+fails+`"*) echo no >&2; exit 1 ;; esac`)
			b := testBuilder(t)
			imported := false
			_, err := b.build(t.Context(), []stage{{name: "project", tag: "stage:key", build: func(ctx context.Context, below, tag string) error {
				return b.inContainer(ctx, below, tag, func(c container) error {
					return c.withContainerd(ctx, func() error { imported = true; return nil })
				})
			}}})
			if err == nil || imported != (fails == "kill") || strings.Contains(calls(), "commit") {
				t.Errorf("%v; imported: %v; docker was asked for\n%s", err, imported, calls())
			}
		})
	}
}
