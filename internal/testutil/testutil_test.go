// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// recorder records how a test ended.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Skip(...any)           { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; panic(r) }

// TestLayers: make test leaves out the tests of Full, and -short those of Integration, too.
func TestLayers(t *testing.T) {
	for layer, wantFull := range map[string]bool{"": testing.Short(), MainLayer: true} {
		t.Setenv(LayerVariable, layer)
		full, integration := &recorder{}, &recorder{}
		Full(full, "reason")
		Integration(integration, "kube-apiserver")
		if full.skipped != wantFull || integration.skipped != testing.Short() {
			t.Errorf("layer %q, -short %v: Full skips %v, Integration %v", layer, testing.Short(), full.skipped, integration.skipped)
		}
	}
}

// TestEventually: the wait ends when the condition holds, and after the limit the test fails.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Eventually(t, time.Minute, func() error {
			if time.Since(start) < 30*time.Second {
				return errors.New("too early")
			}
			return nil
		})
		if waited := time.Since(start); waited > 31*time.Second {
			t.Errorf("waited %v after the condition held", waited)
		}
		r := &recorder{}
		defer func() {
			if recover() != any(r) || !r.failed || time.Since(start) < time.Minute {
				t.Errorf("a condition that never holds: failed %v after %v", r.failed, time.Since(start))
			}
		}()
		Eventually(r, time.Minute, func() error { return errors.New("never") })
	})
}

// late is a package's tests that leave a goroutine which ends later than goleak waits by itself.
type late struct{ ended chan struct{} }

func (l late) Run() int {
	go func() {
		defer close(l.ended)
		time.Sleep(2 * time.Second) // goleak waits for less than half a second
	}()
	return 0
}

// TestVerifyNoLeaks: goroutines that end late are waited for, and a failed run is not.
func TestVerifyNoLeaks(t *testing.T) {
	l := late{make(chan struct{})}
	options := []goleak.Option{goleak.IgnoreCurrent()}
	if code := (settling{l, options}).Run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	select {
	case <-l.ended:
	default:
		t.Error("the run ended before the goroutine")
	}
}
