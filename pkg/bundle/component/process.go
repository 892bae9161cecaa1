// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strconv"
)

// LocalOptions say how a component's paths and ports look outside a container.
type LocalOptions struct {
	// Path maps a path inside the container to a local one. Nil keeps paths.
	Path func(containerPath string) string
	// Port maps a named port to a local number. Nil keeps numbers.
	Port func(name string, port int32) int32
	// Extra flags replace those of the same name, or are appended; they are not
	// mapped.
	Extra []Flag
}

// Process is a component as a local process.
type Process struct {
	// Name of the component, and base name of the program that runs it.
	Name, Command string
	// Args of the program, without its name.
	Args []string
	// Env are its environment variables as NAME=VALUE: those whose value does not
	// depend on the Pod.
	Env []string
}

// LocalProcess renders c as a local process: the flags of its Pod with paths and
// ports mapped, and its environment.
func LocalProcess(c Component, o LocalOptions) Process {
	mapped := make([]Flag, 0, len(c.Flags))
	for _, f := range c.Flags {
		mapped = append(mapped, localFlag(f, o))
	}
	p := Process{Name: c.Name, Command: c.Binary, Args: Args(Merge(mapped, o.Extra))}
	if len(c.Command) > 1 { // a subcommand
		p.Args = append(slices.Clone(c.Command[1:]), p.Args...)
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			p.Env = append(p.Env, e.Name+"="+e.Value)
		}
	}
	return p
}

func localFlag(f Flag, o LocalOptions) Flag {
	switch {
	case f.Kind == Path && o.Path != nil && f.Value != "":
		f.Value = o.Path(f.Value)
	case f.Kind == PortNumber && o.Port != nil:
		// The number was made by PortFlag; zero is "not listening" and stays.
		if n, err := strconv.ParseInt(f.Value, 10, 32); err == nil && n != 0 {
			f.Value = strconv.FormatInt(int64(o.Port(f.Port, int32(n))), 10)
		}
	}
	return f
}
