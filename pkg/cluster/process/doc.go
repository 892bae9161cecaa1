// SPDX-License-Identifier: Apache-2.0

// Package process runs a fixed set of programs and keeps them running.
//
// It knows nothing about Kubernetes: a [Spec] says what to run, what must be
// ready before that, and how to determine that the program itself is ready. A
// [Supervisor] starts the programs in that order, restarts a program that
// exits, with a growing delay, and stops them in reverse order. [Serve] exposes
// it on a Unix socket, [Client] is the client for that socket, and [FindMarked]
// finds the processes that a killed supervisor left behind.
//
// Start reading at [Spec], then [Supervisor.Run].
package process
