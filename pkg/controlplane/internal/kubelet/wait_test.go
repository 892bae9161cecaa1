// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// TestReplacedWhileItSettles: a process that the kubelet replaces by another one with the same flags, because it had read the other
// manifest a moment before, does not count as ready: the time begins again with the other one.
func TestReplacedWhileItSettles(t *testing.T) {
	const settle = 2 * time.Second
	for name, replace := range map[string]func(t *testing.T, proc string){
		"by another process": func(t *testing.T, proc string) {
			if err := os.Rename(filepath.Join(proc, "42"), filepath.Join(proc, "43")); err != nil {
				t.Error(err)
			}
		},
		"by one with its number": func(t *testing.T, proc string) {
			stat := filepath.Join(proc, "42", "stat")
			text, err := os.ReadFile(stat)
			if err == nil {
				err = os.WriteFile(stat, []byte(strings.Replace(string(text), "87563", "99999", 1)), 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		},
		"not": func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			proc := fakeProc(t, "", "42 (server) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 87563 5390336 678\n")
			synctest.Test(t, func(t *testing.T) {
				w := Waiter{
					Poll: Poll{Timeout: time.Minute, Every: 100 * time.Millisecond, Progress: progress.Silent}, Proc: proc, Settle: settle,
					Healthy: func(context.Context, string) error { return nil },
				}
				begin, want := time.Now(), settle
				if name != "not" {
					want += settle / 2
				}
				time.AfterFunc(settle/2, func() { replace(t, string(proc)) })
				if err := w.Ready(t.Context(), &Program{Name: "server"}, nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took < want || took > want+3*w.Every {
					t.Errorf("ready after %v, want %v", took, want)
				}
				time.Sleep(settle)
			})
		})
	}
}
