// SPDX-License-Identifier: Apache-2.0

// Package embedded brings up a cluster of plain processes on loopback:
// unmodified etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// kwok, and the second scheduler, the Konnectivity server and its agents with
// the same arguments that pkg/bundle renders. It needs no container runtime and
// no privileges.
//
// A cluster is a directory (see [Layout]) and a supervisor process that keeps
// the programs running after the command that started them has ended. Start
// with [Provider]: Up is a list of steps (steps.go), Down undoes them, Status
// reports. The arguments of each program are in a separate file (etcd.go,
// apiserver.go, ...).
package embedded
