// Package egress renders kube-apiserver's part of the tunnel: the egress
// selector configuration, the flag that names it, and the two ways to give a
// kubeadm control plane both, as a ClusterConfiguration patch and as a static
// Pod patch. [PatchPod] does the latter in Go.
//
// Start with [Configuration] and [APIServerFlags].
package egress
