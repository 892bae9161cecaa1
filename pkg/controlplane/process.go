package controlplane

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// process says which program a manifest runs, so that it can be found among the
// node's processes: the kubelet gives it the manifest's arguments unchanged.
type process struct {
	// Name is the base name of the program.
	Name string `json:"name"`
	// Args are flags that it must have, Without those that it must not have.
	Args    []string `json:"args"`
	Without []string `json:"without,omitempty"`
	// Health is the URL that must answer, empty for none.
	Health string `json:"health,omitempty"`
}

// waits are the programs before and after a run; nil for none.
type waits struct {
	OldServer    *process `json:"oldServer,omitempty"`
	NewServer    *process `json:"newServer,omitempty"`
	OldAPIServer *process `json:"oldAPIServer,omitempty"`
	NewAPIServer *process `json:"newAPIServer,omitempty"`
}

// programOf is the program of a container. Arguments with $(…) are replaced by the
// kubelet, so they say nothing here.
func programOf(c corev1.Container) *process {
	all := slices.Concat(c.Command, c.Args)
	if len(all) == 0 {
		return &process{Name: c.Name}
	}
	p := &process{Name: path.Base(all[0])}
	for _, arg := range all[1:] {
		if strings.HasPrefix(arg, "--") && !strings.Contains(arg, "$(") {
			p.Args = append(p.Args, arg)
		}
	}
	return p
}

// without says which flags of other the program must not have.
func (p *process) without(other *process) *process {
	out := *p
	out.Without = slices.DeleteFunc(slices.Clone(other.Args), func(a string) bool { return slices.Contains(p.Args, a) })
	return &out
}

func (p *process) matches(argv []string) bool {
	if len(argv) == 0 || path.Base(argv[0]) != p.Name {
		return false
	}
	for _, a := range p.Args {
		if !slices.Contains(argv, a) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Without, func(a string) bool { return slices.Contains(argv, a) })
}

// find returns the processes of the node that match, in no order.
func (p *process) find() []int {
	var found []int
	eachProcess(func(pid int, argv []string) {
		if p.matches(argv) {
			found = append(found, pid)
		}
	})
	return found
}

func eachProcess(see func(pid int, argv []string)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(data) == 0 {
			continue
		}
		see(pid, strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00"))
	}
}

// flag is the value of a flag in arguments, the last one if it stands twice.
func flag(args []string, name string) string {
	value := ""
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}
