// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// owner identifies this process in the names of the things that it creates, so
// a later run can recognize what a killed one left behind. It has the process
// id and the place in which that id is valid.
func owner() string { return fmt.Sprintf("%d-%s", os.Getpid(), place()) }

// place identifies the current boot of this machine and the PID namespace. The
// container runtime may also serve test runs in containers and on other
// machines, whose processes cannot be seen from here.
func place() string {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256([]byte(host + "\n" + string(boot) + namespace))
	return hex.EncodeToString(sum[:3])
}

// ownerGone says whether the process of the owner at the beginning of a name is
// gone. For an owner of another place it returns false, because that is not
// known.
func ownerGone(name string) bool {
	number, rest, _ := strings.Cut(name, "-")
	where, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	// Processes of other users exist too, although only root may send signals to
	// them: kill then fails with EPERM.
	return err == nil && pid > 0 && where == place() && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
