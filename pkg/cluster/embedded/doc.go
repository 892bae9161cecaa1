// Package embedded brings up a cluster of plain processes on loopback: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kwok as they
// are, and the second scheduler, the Konnectivity server and its agents with
// the very arguments that pkg/bundle renders. It needs no container runtime and
// no privileges.
//
// A cluster is a directory (see [Layout]) and a supervisor process that keeps
// the programs running after the command that made them has ended. [Provider]
// is the way in: Up is a list of steps (steps.go), Down undoes them, Status
// looks. The arguments of every program stand in a file of its own
// (etcd.go, apiserver.go, ...).
package embedded
