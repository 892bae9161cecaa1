// SPDX-License-Identifier: Apache-2.0

package gobuild

import (
	"os/exec"
	"testing"
)

// TestRun: names of packages and downloads are progress; what the compiler says is output, also without an end of line.
func TestRun(t *testing.T) {
	t.Parallel()
	script := `echo "go: downloading k8s.io/api v0.36.3"; echo k8s.io/api/core/v1; echo example.com/a
echo "# example.com/a"; echo "./a.go:3:1: undefined: x" >&2; printf "./a.go:4:1: no end"; exit 1`
	var last Progress
	calls := 0
	out, err := Run(exec.CommandContext(t.Context(), "sh", "-c", script), func(p Progress) { last = p; calls++ })
	if err == nil {
		t.Error("the exit code is lost")
	}
	if last != (Progress{Compiled: 2, Downloaded: 1}) || calls != 3 {
		t.Errorf("progress %+v after %d calls", last, calls)
	}
	if got, want := string(out), "# example.com/a\n./a.go:3:1: undefined: x\n./a.go:4:1: no end"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}
