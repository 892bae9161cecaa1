// SPDX-License-Identifier: Apache-2.0

package cluster

// Rate limits of a second kube-controller-manager, for its flags --kube-api-qps and
// --kube-api-burst. It creates a service account and a token for each of its
// controllers before the first controller starts, which takes seconds at its default of
// 20. Until then it does not sign the certificates of kubelets, and no node joins.
const (
	ControllerManagerQPS   = "200"
	ControllerManagerBurst = "400"
)
