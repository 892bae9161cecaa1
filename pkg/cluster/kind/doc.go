// Package kind makes clusters of containers with sigs.k8s.io/kind: real kubeadm,
// kubelet and containerd, the Konnectivity server as a static Pod beside every
// API server, agents as a DaemonSet, the second scheduler as a Deployment.
//
// Start with [Provider.Up]. It finds the container runtime (runtime.go) and the
// node image (image.go), decides everything ([plan]), writes what the nodes need
// into the state directory (nodedir.go), and lets kind create the cluster from
// the configuration that config.go renders.
//
// # What is in the nodes before kubeadm
//
// kind has no hook between creating node containers and running kubeadm, so
// everything comes through mounts. The cluster's CA is mounted as files into the
// first control plane node, where kubeadm finds and uses it. The rest is an
// archive that a systemd unit of ours unpacks before containerd and kubelet
// start, once: the node's own copies belong to its root with the modes that the
// bundle asks for, whoever owns the state directory; they survive a restart of
// the node, and may be changed and removed like on any machine. See directory
// node for the units.
package kind
