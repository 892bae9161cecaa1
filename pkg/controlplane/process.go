// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// process describes the program that a manifest runs, so that it can be found
// among the node's processes: the kubelet passes it the manifest's arguments
// unchanged. Where flags do not distinguish two starts of a program, [origin]
// does.
type process struct {
	// Name is the base name of the program.
	Name string `json:"name"`
	// Args are flags that the process must have, and Without are flags that it
	// must not have.
	Args    []string `json:"args"`
	Without []string `json:"without,omitempty"`
	// Health is the URL of its health check, or "" if it has none.
	Health string `json:"health,omitempty"`
}

// waits holds the programs before and after a run; nil for none.
type waits struct {
	OldServer    *process `json:"oldServer,omitempty"`
	NewServer    *process `json:"newServer,omitempty"`
	OldAPIServer *process `json:"oldAPIServer,omitempty"`
	NewAPIServer *process `json:"newAPIServer,omitempty"`
	// Server and APIServer distinguish processes with the same flags.
	Server    origin `json:"server,omitzero"`
	APIServer origin `json:"apiServer,omitzero"`
	// Mirrored: the API server showed kube-apiserver's mirror Pod when the step
	// began.
	Mirrored bool `json:"mirrored,omitempty"`
}

// of returns what a step waits for: the programs before and after, and how to
// distinguish their processes. It returns nils for a step that waits for nothing.
func (w *waits) of(step Step) (old, fresh *process, o *origin) {
	switch step {
	case StepServer:
		return w.OldServer, w.NewServer, &w.Server
	case StepAPIServer:
		return w.OldAPIServer, w.NewAPIServer, &w.APIServer
	}
	return nil, nil, nil
}

// programOf returns the program of a container. It skips arguments with $(…),
// because the kubelet expands them.
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

// without returns a copy of p that must not have those flags of other that p does
// not have itself.
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

// flag returns the value of a flag in a list of arguments. If the flag is
// repeated, the last value wins.
func flag(args []string, name string) string {
	value := ""
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}
