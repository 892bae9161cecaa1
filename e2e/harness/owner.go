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

// owner is this process in the names of what it makes, so that a later run can
// tell what a killed one has left: its number, and where that number means it.
func owner() string { return fmt.Sprintf("%d-%s", os.Getpid(), place()) }

// place is this machine since it was started, and the namespace in which
// processes have their numbers: the container runtime may serve others, in
// containers and on other machines, whose processes cannot be seen from here.
func place() string {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256([]byte(host + "\n" + string(boot) + namespace))
	return hex.EncodeToString(sum[:3])
}

// ownerGone tells of a name that begins with an owner whether that process is no
// more. It is not known of one of another place.
func ownerGone(name string) bool {
	number, rest, _ := strings.Cut(name, "-")
	where, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	// Others' processes are there, though nobody but root may send them anything.
	return err == nil && pid > 0 && where == place() && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
