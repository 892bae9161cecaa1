// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
)

// IDs of the checks whose errors become warnings if the user ignores the check.
const (
	// Version: the Kubernetes version is one that this release is tested with.
	Version = "version"
	// ServerCount: the bundle tells agents about every control plane node.
	ServerCount = "server-count"
	// Agents: agents can connect before kube-apiserver depends on them.
	Agents = "agents"
	// FrontProxyCA: no CA signs both client certificates and those of front proxies.
	FrontProxyCA = "front-proxy-ca"
	// All stands for every check that can be ignored.
	All = "all"
)

// Ignorable returns the IDs of the checks that can be ignored, and All.
func Ignorable() []string {
	return []string{Agents, FrontProxyCA, ServerCount, Version, All}
}

// Ignored are the IDs of the checks that the user ignores.
type Ignored []string

// Has reports whether the user ignores a check.
func (i Ignored) Has(id string) bool {
	return slices.Contains(i, id) || slices.Contains(i, All)
}
