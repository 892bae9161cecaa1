// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// offline tells this test that it runs in a network namespace of its own.
const offline = "FAIRLEAD_E2E_OFFLINE"

// TestOffline: without a loopback interface "up" says what to do. On a machine whose only interface is loopback, "up" says once that there is no
// network, and all checks pass, those of logs, exec and port-forward among them. The home
// directory has a comma and a quotation mark in its name, as flags that are lists may not.
func TestOffline(t *testing.T) {
	t.Parallel()
	if os.Getenv(offline) == "" {
		testutil.Limit(t, homeLimit)
		inOwnNetwork(t, "TestOffline")
		return
	}
	made, err := harness.NewHome(binDir, harness.HomePrefix()+`a,"`)
	if err != nil {
		t.Fatal(err)
	}
	h := homeOf(t, made)
	if down := h.try("up", "-q"); down.Code == 0 || !strings.Contains(down.Stderr, "ip link set lo up") {
		t.Errorf("without a loopback interface up ended with %d and has to say what to do:\n%s", down.Code, down.Stderr)
	}
	raiseLoopback(t)
	up := h.try("up")
	if said := up.Stdout + up.Stderr; up.Code != 0 || strings.Count(said, "No network:") != 1 {
		t.Fatalf("up ended with %d and has to say once that there is no network:\n%s", up.Code, said)
	}
	report := h.must("verify")
	for _, check := range []string{"tunnel-logs", "tunnel-exec", "tunnel-port-forward", "scheduler-three-pods"} {
		if !strings.Contains(report, check) {
			t.Errorf("%s was not run:\n%s", check, report)
		}
	}
	if strings.Contains(report, "✗") {
		t.Errorf("a check failed:\n%s", report)
	}
	h.must("down", "-q")
	h.nothingLeft("dev")
}

// inOwnNetwork runs a test of this package in a network namespace with nothing but a
// loopback interface that is down.
func inOwnNetwork(t *testing.T, name string) {
	t.Helper()
	flags := "-rn"
	if os.Getuid() == 0 {
		flags = "-n"
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", flags, "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no network namespaces here: %v %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", flags, os.Args[0], "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), offline+"=1", "FAIRLEAD_E2E_BIN="+binDir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Errorf("in a network namespace: %v", err)
	}
}

func raiseLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatalf("raise lo: %v", err)
	}
}
