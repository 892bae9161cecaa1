// Package cluster holds what all ways to a cluster share: the interface that a
// [Provider] has for the commands, where a cluster's state is ([Home]), how a
// bring-up reports its [Progress], and how a cluster enters and leaves the user's
// kubeconfig. The ways themselves are packages of their own: embedded runs
// processes, kind runs containers; package providers finds the one that has a
// cluster.
package cluster

// Progress is told what a long command is doing. Steps do not nest.
type Progress interface {
	// Begin starts a step, such as "Starting control plane".
	Begin(step string)
	// Detail says what the running step is doing just now; it may be shown or not.
	Detail(format string, args ...any)
	// End finishes the running step; result is a short addition to its line, err says that it failed.
	End(result string, err error)
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
