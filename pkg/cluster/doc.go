// SPDX-License-Identifier: Apache-2.0

// Package cluster holds what all providers of clusters share: the [Provider]
// interface that the commands use, the location of a cluster's state ([Home]),
// how a bring-up reports its [Progress], and how a cluster's context is added to
// and removed from the user's kubeconfig. Each provider has a package of its own:
// embedded runs processes, kind runs containers. Package providers finds the
// provider that has a cluster.
package cluster

import "fmt"

// Progress reports what a long command is doing. Steps do not nest.
type Progress interface {
	// Begin starts a step, such as "Starting control plane".
	Begin(step string)
	// Detail reports what the running step is doing now; an implementation may
	// ignore it.
	Detail(format string, args ...any)
	// End finishes the running step. The result is a short addition to its line.
	// A non-nil err means that the step failed.
	End(result string, err error)
}

// Note shows a remark between steps, if the Progress has a method for that.
func Note(p Progress, format string, args ...any) {
	if n, ok := p.(interface{ Note(text string) }); ok {
		n.Note(fmt.Sprintf(format, args...))
	}
}

// Silent is a Progress that shows nothing.
var Silent Progress = silent{}

type silent struct{}

func (silent) Begin(string)          {}
func (silent) Detail(string, ...any) {}
func (silent) End(string, error)     {}

// Step runs one step and reports it.
func Step(p Progress, title string, run func() (result string, err error)) error {
	p.Begin(title)
	result, err := run()
	p.End(result, err)
	return err
}
