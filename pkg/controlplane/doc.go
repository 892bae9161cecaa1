// Package controlplane brings the tunnel into a control plane that kubeadm has
// made, and out of it again. It runs on the control plane node itself, as root.
//
// Start with [Install], [Uninstall] and [Inspect]; package bundle says what
// belongs on the node, this package gets it there. How it does that:
//
//   - Everything is checked before anything changes (preflight.go, plan.go).
//   - All changes of one run are a transaction (journal.go, transaction.go): new
//     files lie complete beside the old ones before the first rename, so a full
//     disk is noticed while nothing has changed; a journal says at every moment
//     how to go on or back, so that a run which was killed can be completed or
//     rolled back by the next one.
//   - kube-apiserver's manifest is edited as text (edit.go), so that comments,
//     order and unknown fields stay, and then compared with what the typed edit
//     of package egress gives.
//   - After each step it waits until the kubelet has done its part (wait.go), and
//     puts everything back if that does not happen in time.
//
// The state directory [StateDir] holds the journal of a run and, between
// install and uninstall, the state and the files as they were.
package controlplane
