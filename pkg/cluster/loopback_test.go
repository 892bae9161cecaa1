// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// loopbackHelper makes this test binary a program that looks for loopback.
const loopbackHelper = "FAIRLEAD_TEST_LOOPBACK"

// With the loopback interface down "up" stops at once instead of waiting for programs
// that cannot reach each other.
func TestCheckLoopback(t *testing.T) {
	if os.Getenv(loopbackHelper) != "" {
		if err := CheckLoopback(t.Context()); !errors.Is(err, ErrNoLoopback) {
			t.Errorf("in a namespace without loopback: %v", err)
		}
		return
	}
	if err := CheckLoopback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "unshare", "-rn", "true").Run(); err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-rn", os.Args[0], "-test.run=^TestCheckLoopback$")
	cmd.Env = append(os.Environ(), loopbackHelper+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
