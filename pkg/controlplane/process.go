package controlplane

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// process says which program a manifest runs, so that it can be found among the
// node's processes: the kubelet gives it the manifest's arguments unchanged. Which
// start of it is meant, where flags do not tell, says [origin].
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
	// Server and APIServer tell processes with the same flags from each other.
	Server    origin `json:"server,omitzero"`
	APIServer origin `json:"apiServer,omitzero"`
	// Mirrored: the API showed kube-apiserver's Pod.
	Mirrored bool `json:"mirrored,omitempty"`
}

// of is what a step waits for: the programs before and after, and how to tell
// their processes; nils for a step that waits for none.
func (w *waits) of(step Step) (old, fresh *process, o *origin) {
	switch step {
	case StepServer:
		return w.OldServer, w.NewServer, &w.Server
	case StepAPIServer:
		return w.OldAPIServer, w.NewAPIServer, &w.APIServer
	}
	return nil, nil, nil
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

func (p *process) named(argv []string) bool {
	return len(argv) > 0 && path.Base(argv[0]) == p.Name
}

func (p *process) matches(argv []string) bool {
	if !p.named(argv) {
		return false
	}
	for _, a := range p.Args {
		if !slices.Contains(argv, a) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Without, func(a string) bool { return slices.Contains(argv, a) })
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
