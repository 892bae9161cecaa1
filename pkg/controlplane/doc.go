// SPDX-License-Identifier: Apache-2.0

// Package controlplane installs the tunnel in a control plane that kubeadm has
// created, and uninstalls it. It runs on the control plane node itself, as root.
//
// Start with [Install], [Uninstall] and [Inspect]. Package bundle defines what
// belongs on the node, and this package puts it there:
//
//   - It checks everything before it changes anything (internal/preflight, plan.go).
//     internal/fileplan collects the changes of files, and internal/certs issues and
//     renews certificates.
//   - All changes of one run are a transaction (internal/journal). New files are
//     complete and next to the old ones before the first rename, so a full disk is
//     detected while nothing has changed. A journal always records how to go on or
//     roll back, so the next run can complete or roll back a killed run.
//   - It edits kube-apiserver's manifest as text (internal/manifests), so that
//     comments, order and unknown fields stay, and then compares the result with
//     that of the typed edit of package apiserver.
//   - After each step it waits until the kubelet has done its part (effects.go), and
//     rolls everything back if that does not happen in time. internal/kubelet finds
//     the processes and logs of static Pods, and waits for them.
//   - internal/apiclient connects to this node's kube-apiserver, and internal/cluster
//     reads there what an installation must know of the other nodes.
//   - internal/nodefs reads and replaces files below the node's root.
//
// The state directory [StateDir] contains the journal of a run and, between
// install and uninstall, the state and the files as they were before.
package controlplane
