// SPDX-License-Identifier: Apache-2.0

// Package apiserver renders what the bundle changes in kube-apiserver: all of its flags, the
// egress selector configuration, the front proxy's certificate request, and the two ways to
// give a kubeadm control plane all of it, as a ClusterConfiguration patch and as a static Pod
// patch. [PatchPod] does the latter in Go.
//
// Start with [Flags] and [EgressSelectorConfiguration].
package apiserver
