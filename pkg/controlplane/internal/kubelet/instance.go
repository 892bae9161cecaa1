// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Instance is one start of a program. After a manifest has changed, it
// distinguishes the kubelet's new process from the old one, which may have the same
// flags.
type Instance struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot, with the boot: a process
	// ID alone can be reused.
	Start string `json:"start"`
	// Pod is the UID of its static Pod, from its cgroup; empty if the cgroup does
	// not contain it. The kubelet derives the UID from the manifest's content, so
	// it stays the same if the kubelet only restarts the container.
	Pod string `json:"pod,omitempty"`
}

// Among reports whether the instance was started from the same manifest as one of
// the others.
func (i Instance) Among(others []Instance) bool {
	return slices.ContainsFunc(others, func(o Instance) bool {
		return i.Pod != "" && i.Pod == o.Pod || i.PID == o.PID && i.Start == o.Start
	})
}

// Origin distinguishes instances of the manifest before a run from those of the
// run.
type Origin struct {
	// Begun means that the run may have changed the manifest. Before that there is
	// nothing to roll back and to wait for.
	Begun bool `json:"begun,omitempty"`
	// Before lists the instances that ran when the new manifest was about to be put
	// in place.
	Before []Instance `json:"before,omitempty"`
	// During lists the instances started from the new manifest.
	During []Instance `json:"during,omitempty"`
}

// Procfs is the mount point of the proc file system: /proc.
type Procfs string

// Find returns the instances of a program in this node's network namespace: those
// with matching flags if exact, or else all of that name. A cluster of containers
// on the same machine may run the same program in a network namespace of its own.
func (f Procfs) Find(p *Program, exact bool) []Instance {
	var found []Instance
	own := f.network("self")
	f.each(func(pid int, argv []string) {
		if exact && p.matches(argv) || !exact && p.named(argv) {
			if other := f.network(strconv.Itoa(pid)); own != "" && other != "" && other != own {
				return
			}
			found = append(found, Instance{PID: pid, Start: f.start(pid), Pod: f.pod(pid)})
		}
	})
	return found
}

func (f Procfs) each(see func(pid int, argv []string)) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := f.read(pid, "cmdline")
		if err != nil || len(data) == 0 {
			continue
		}
		see(pid, strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00"))
	}
}

func (f Procfs) read(pid int, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), strconv.Itoa(pid), name))
}

// network identifies the network namespace of a process; empty if it is not
// visible.
func (f Procfs) network(pid string) string {
	name, _ := os.Readlink(filepath.Join(string(f), pid, "ns/net"))
	return name
}

// start returns the process's start time, field 22 of stat, and the boot that it
// belongs to. The second field, the program's name, may contain blanks and
// brackets.
func (f Procfs) start(pid int) string {
	const startTime = 22 - 3 // the first two fields are cut off
	data, err := f.read(pid, "stat")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= startTime {
		return ""
	}
	boot, _ := os.ReadFile(filepath.Join(string(f), "sys/kernel/random/boot_id"))
	return string(bytes.TrimSpace(boot)) + "/" + fields[startTime]
}

// podCgroup matches a Pod's UID in a cgroup path, in the formats of the kubelet's
// two cgroup drivers: .../pod3ac0.../... and
// .../kubepods-burstable-pod3ac0....slice/....
var podCgroup = regexp.MustCompile(`[/-]pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)`)

// pod returns the UID of the innermost Pod, because the node may itself be a
// container in a Pod.
func (f Procfs) pod(pid int) string {
	data, err := f.read(pid, "cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		// Two consecutive matches may share the slash between them.
		uid, rest := "", strings.TrimSpace(line)
		for at := podCgroup.FindStringSubmatchIndex(rest); at != nil; at = podCgroup.FindStringSubmatchIndex(rest) {
			uid, rest = rest[at[2]:at[3]], rest[at[3]:]
		}
		if uid != "" {
			return strings.ReplaceAll(uid, "_", "-")
		}
	}
	return ""
}
