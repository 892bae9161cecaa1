package controlplane

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// instance is one start of a program. After a manifest has changed it tells the
// kubelet's new process from the old one, which may have the very same flags.
type instance struct {
	PID int `json:"pid"`
	// Start is when it was started, in clock ticks of one boot of the machine: a
	// process id alone is given out again.
	Start string `json:"start"`
	// Pod is the UID of the static Pod that it runs in, by its cgroup; empty where
	// that does not say. The kubelet makes it of the manifest's content, so that a
	// container that it only restarts keeps it.
	Pod string `json:"pod,omitempty"`
}

// among tells whether the instance was started from the same manifest as one of
// those.
func (i instance) among(others []instance) bool {
	return slices.ContainsFunc(others, func(o instance) bool {
		return i.Pod != "" && i.Pod == o.Pod || i.PID == o.PID && i.Start == o.Start
	})
}

// origin tells instances of the manifest before a run from those of the run.
type origin struct {
	// Begun: the run may have changed the manifest; before that there is nothing to
	// put back and to wait for.
	Begun bool `json:"begun,omitempty"`
	// Before ran when the new manifest was about to take its place.
	Before []instance `json:"before,omitempty"`
	// During were started from the new one.
	During []instance `json:"during,omitempty"`
}

// procfs is where the kernel shows processes: /proc.
type procfs string

// find returns the instances of a program on this node's network, those that match
// all of it if exact and else those of its name. A cluster in containers on the
// same machine may run the very same, on a network of its own.
func (f procfs) find(p *process, exact bool) []instance {
	var found []instance
	own := f.network("self")
	f.each(func(pid int, argv []string) {
		if exact && p.matches(argv) || !exact && p.named(argv) {
			if other := f.network(strconv.Itoa(pid)); own != "" && other != "" && other != own {
				return
			}
			found = append(found, instance{PID: pid, Start: f.start(pid), Pod: f.pod(pid)})
		}
	})
	return found
}

func (f procfs) each(see func(pid int, argv []string)) {
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

func (f procfs) read(pid int, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), strconv.Itoa(pid), name))
}

// network names the network namespace of a process; empty if that is not shown.
func (f procfs) network(pid string) string {
	name, _ := os.Readlink(filepath.Join(string(f), pid, "ns/net"))
	return name
}

// start is the process's start time, field 22 of stat, and the boot that it
// belongs to. The second field, the program's name, may hold blanks and brackets.
func (f procfs) start(pid int) string {
	const startTime = 22 - 3 // without the first two
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

// podCgroup finds a Pod's UID in a path of cgroups, as the kubelet's two drivers
// write it: .../pod3ac0.../... and .../kubepods-burstable-pod3ac0....slice/....
var podCgroup = regexp.MustCompile(`[/-]pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)`)

// pod is the innermost Pod, as the node may itself be a container in one.
func (f procfs) pod(pid int) string {
	data, err := f.read(pid, "cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		// Two Pods may share the slash between them.
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
