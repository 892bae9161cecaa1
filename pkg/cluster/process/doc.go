// Package process runs a fixed set of programs and keeps them running.
//
// It knows nothing of Kubernetes: a [Spec] says what to run, what has to be
// ready before, and how to see that it is ready itself. A [Supervisor] starts
// the programs in that order, restarts one that dies with a growing delay, and
// stops them in the reverse order. [Serve] offers it on a Unix socket, [Client]
// talks to that socket, and [FindMarked] finds what a supervisor left behind
// when it was itself killed.
//
// Start reading at [Spec], then [Supervisor.Run].
package process
