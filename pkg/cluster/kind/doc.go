// SPDX-License-Identifier: Apache-2.0

// Package kind creates clusters of containers with sigs.k8s.io/kind: real kubeadm,
// kubelet and containerd, the Konnectivity server as a static Pod next to every API
// server, agents as a DaemonSet, the second scheduler as a Deployment.
//
// Start with [Provider.Up]. It finds the container runtime (runtime.go) and the node
// image (image.go), decides everything ([plan]), writes what the nodes need into the
// state directory (nodedir.go), and lets kind create the cluster from the
// configuration that config.go renders.
//
// # What is in the nodes before kubeadm
//
// kind has no hook between creating node containers and running kubeadm, so mounts
// provide everything. The cluster's CA is mounted as files into the first control
// plane node, where kubeadm finds and uses it. The rest is an archive. A systemd unit
// of this package unpacks it once, before containerd and kubelet start. The node's
// own copies then belong to its root user, with the modes that the bundle specifies,
// whichever user owns the state directory. They survive a restart of the node, and
// can be changed and removed as on any machine. See directory node for the units.
//
// # Certificates of kubelets
//
// kube-apiserver verifies kubelets with the cluster's CA. While Up waits, it approves
// their certificate signing requests if they match the addresses that the container
// runtime reports for the node's container (kubeletcerts.go).
package kind
