// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/components"
)

// recorder is a progress.Reporter that records its calls.
type recorder struct {
	mu      sync.Mutex
	steps   []string
	details []string
	failed  int
}

func (r *recorder) Begin(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step)
}
func (r *recorder) Detail(format string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.details = append(r.details, format)
}
func (r *recorder) End(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed++
	}
}

// Tests that bring a cluster up use the real compiler. A script replaces it
// here, for the failures and delays that the real one cannot produce on demand.
func fakeGo(t *testing.T, build string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo "${FAKE_VERSION:-go9.9.9}"; exit 0 ;;
"env GOTOOLCHAIN") echo local; exit 0 ;;
esac
while [ $# -gt 0 ]; do
case "$1" in
-o) out=$2; shift ;;
-ldflags) shift ;;
-*|build) ;;
*) names="$names $(basename ${1%/v3})" ;;
esac
shift
done
mkdir -p "$out"
echo build >>` + dir + `/calls
` + build + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("FAKE_CALLS", dir+"/calls")
}

func calls(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(os.Getenv("FAKE_CALLS"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

const works = `for n in $names; do printf '#!/bin/sh\n' >"$out$n" && chmod +x "$out$n" || exit 1; done`

func TestBuildsOnce(t *testing.T) {
	fakeGo(t, works)
	reporter := &recorder{}
	b := builder{dir: filepath.Join(t.TempDir(), "cache"), progress: reporter}
	for range 2 {
		if err := b.ensure(t.Context(), needed); err != nil {
			t.Fatal(err)
		}
	}
	if got := calls(t); got != 1 {
		t.Errorf("%d builds, want one of all", got)
	}
	if len(reporter.steps) != 1 || !strings.Contains(reporter.steps[0], "etcd, ") || !strings.Contains(reporter.steps[0], "kwok") {
		t.Errorf("progress: %q", reporter.steps)
	}
	if left := b.missing(needed); len(left) != 0 {
		t.Errorf("missing after the build: %v", left)
	}
	if work, _ := filepath.Glob(filepath.Join(b.dir, ".build-*")); len(work) > 0 {
		t.Errorf("work directories are left: %v", work)
	}
}

func TestConcurrentBuildersWait(t *testing.T) {
	fakeGo(t, "sleep 0.2; "+works)
	dir := filepath.Join(t.TempDir(), "cache")
	results := make(chan error, 3)
	recorders := []*recorder{{}, {}, {}}
	for _, r := range recorders {
		go func() { results <- builder{dir: dir, progress: r}.ensure(t.Context(), []string{"etcd", "kwok"}) }()
	}
	for range recorders {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := calls(t); got != 1 {
		t.Errorf("%d builds by three at once, want 1", got)
	}
	waited := slices.ContainsFunc(recorders, func(r *recorder) bool { return len(r.details) > 0 })
	if !waited {
		t.Error("no progress says that another process builds")
	}
}

func TestFailedBuilds(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   []string
	}{
		"compile error": {"echo main.go:7: undefined: x; exit 1", []string{"etcd", "build.log"}},
		"full disk":     {"echo write out: no space left on device; exit 1", []string{"the disk is full", "XDG_CACHE_HOME"}},
		"no network":    {"echo Get: dial tcp: lookup proxy: no such host; exit 1", []string{"module proxy", "GOPROXY"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeGo(t, tc.script)
			reporter := &recorder{}
			b := builder{dir: filepath.Join(t.TempDir(), "cache"), progress: reporter}
			err := b.ensure(t.Context(), []string{"etcd"})
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q in it", err, want)
				}
			}
			if reporter.failed != 1 {
				t.Errorf("%d failed steps, want 1", reporter.failed)
			}
			if executable(filepath.Join(b.dir, "etcd")) {
				t.Error("a failed build left a program")
			}
			if log, _ := os.ReadFile(filepath.Join(b.dir, "build.log")); len(log) == 0 {
				t.Error("the compiler's output was not kept")
			}
		})
	}
}

func TestInterruptedBuild(t *testing.T) {
	// A partial binary must not be taken for a complete one.
	fakeGo(t, works+`; exec sleep 30`)
	b := builder{dir: filepath.Join(t.TempDir(), "cache"), progress: &recorder{}}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := b.ensure(ctx, []string{"etcd"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the interrupt", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the interrupt took %v", took)
	}
	if len(b.missing([]string{"etcd"})) != 1 {
		t.Error("an interrupted build left a program")
	}
}

func TestToolchain(t *testing.T) {
	fakeGo(t, works)
	t.Setenv("FAKE_VERSION", "go1.20.1")
	b := builder{dir: filepath.Join(t.TempDir(), "cache"), progress: &recorder{}}
	err := b.ensure(t.Context(), []string{"etcd"})
	if !errors.Is(err, ErrToolchain) || !strings.Contains(err.Error(), "go1.20.1") || !strings.Contains(err.Error(), components.GoVersion()) {
		t.Errorf("an old Go: %v, want both versions", err)
	}
	t.Setenv("PATH", t.TempDir())
	err = b.ensure(t.Context(), []string{"etcd"})
	if !errors.Is(err, ErrToolchain) || !strings.Contains(err.Error(), "--component-dir") {
		t.Errorf("no Go: %v, want what to do", err)
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("the cache was made though nothing can be built (%v)", err)
	}
}

func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find(t.Context(), Options{Dir: t.TempDir()}, &recorder{})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "fairlead-scheduler") || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error = %v, want the program and what to do", err)
	}
}
