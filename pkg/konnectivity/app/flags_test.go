package app_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A drop-in replacement has the flags of what it replaces: names, types, defaults and what they are said to do (KON-30
// to KON-42, KON-60 to KON-78). Upstream's own programs are the reference.
func TestFlagsAreUpstreams(t *testing.T) {
	tests := []struct{ name, ours, upstream string }{
		{"server", ourServer(), filepath.Join(programs, "server")},
		{"agent", ourAgent(), filepath.Join(programs, "agent")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, got := flags(t, tt.upstream), flags(t, tt.ours)
			if len(want) < 30 {
				t.Fatalf("upstream has only %d flags: was its help understood?", len(want))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("flags differ from upstream's (-upstream +ours):\n%s", diff)
			}
		})
	}
}

// flags returns the lines of a program's help that describe flags, without what depends on host or process.
func flags(t *testing.T, binary string) []string {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), binary, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", binary, err, help)
	}
	var found []string
	for line := range strings.Lines(string(help)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || !strings.Contains(line, "--"):
		case strings.HasPrefix(strings.TrimSpace(line), "-h, --help"): // names the program
		case strings.Contains(line, "--server-id ") || strings.Contains(line, "--agent-id "): // a random default
			found = append(found, fields[0])
		default:
			found = append(found, strings.Join(fields, " "))
		}
	}
	return found
}
