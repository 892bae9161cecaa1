// SPDX-License-Identifier: Apache-2.0

// Package kubelet observes the programs that the kubelet runs from static Pods' manifests:
// what they are ([Program]), their processes ([Procfs]), their logs ([LastLogLines]), and what
// the API shows of them ([Mirror]). [Waiter] waits until the kubelet has restarted one.
package kubelet

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Program describes the program that a manifest runs, so that it can be found
// among the node's processes: the kubelet passes it the manifest's arguments
// unchanged. Where flags do not distinguish two starts of a program, [Origin]
// does.
type Program struct {
	// Name is the base name of the program.
	Name string `json:"name"`
	// Args are flags that the process must have, and Without are flags that it
	// must not have.
	Args    []string `json:"args"`
	Without []string `json:"without,omitempty"`
	// Health is the URL of its health check, or "" if it has none.
	Health string `json:"health,omitempty"`
}

// ProgramOf returns the program of a container. It skips arguments with $(…),
// because the kubelet expands them.
func ProgramOf(c corev1.Container) *Program {
	all := slices.Concat(c.Command, c.Args)
	if len(all) == 0 {
		return &Program{Name: c.Name}
	}
	p := &Program{Name: path.Base(all[0])}
	for _, arg := range all[1:] {
		if strings.HasPrefix(arg, "--") && !strings.Contains(arg, "$(") {
			p.Args = append(p.Args, arg)
		}
	}
	return p
}

// Excluding returns a copy of p that must not have those flags of other that p does
// not have itself.
func (p *Program) Excluding(other *Program) *Program {
	out := *p
	out.Without = slices.DeleteFunc(slices.Clone(other.Args), func(a string) bool { return slices.Contains(p.Args, a) })
	return &out
}

func (p *Program) named(argv []string) bool {
	return len(argv) > 0 && path.Base(argv[0]) == p.Name
}

func (p *Program) matches(argv []string) bool {
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

// Flag returns the value of a flag in a list of arguments. If the flag is
// repeated, the last value wins.
func Flag(args []string, name string) string {
	value := ""
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}
