// SPDX-License-Identifier: Apache-2.0

package konnectivity

// tokenReviewer names the ClusterRole that lets the server review agents' tokens, and its binding.
const tokenReviewer = ServerUser + ":tokenreviews"

// Needed reports whether the tunnel does not work without this object: its workloads,
// the agents' ServiceAccount and the server's permission to review their tokens.
// Objects that a bundle has only with some settings, such as the Role for Leases or
// the Service, are not needed: they are removed with the setting.
func Needed(kind, name string, labels map[string]string) bool {
	switch kind {
	case "DaemonSet", "Deployment":
		return labels[appLabel] == ServerName || IsAgent(kind, labels)
	case "ServiceAccount":
		return labels[addonModeLabel] == addonModeReconcile && labels[clusterService] == "true"
	case "ClusterRoleBinding":
		return name == tokenReviewer
	}
	return false
}

// IsAgent reports whether an object is a workload of agents: that of the bundle or of a TunnelPool.
func IsAgent(kind string, labels map[string]string) bool {
	return (kind == "DaemonSet" || kind == "Deployment") && labels[appLabel] == AgentName
}
