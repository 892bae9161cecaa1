// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
)

// IDs of the preflight checks whose errors [Options.IgnorePreflight] turns into
// warnings. Package install has the first two IDs as well.
const (
	// CheckVersion: the Kubernetes version is one that this release is tested with.
	CheckVersion = "version"
	// CheckServerCount: the bundle tells agents about every control plane node.
	CheckServerCount = "server-count"
	// CheckAgents: agents can connect before kube-apiserver depends on them.
	CheckAgents = "agents"
	// CheckFrontProxyCA: no CA signs both client certificates and those of front proxies.
	CheckFrontProxyCA = "front-proxy-ca"
	// CheckAll stands for every check that can be ignored.
	CheckAll = "all"
)

// IgnorableChecks returns the values that [Options.IgnorePreflight] accepts.
func IgnorableChecks() []string {
	return []string{CheckAgents, CheckFrontProxyCA, CheckServerCount, CheckVersion, CheckAll}
}

func (o *Options) ignores(id string) bool {
	return slices.Contains(o.IgnorePreflight, id) || slices.Contains(o.IgnorePreflight, CheckAll)
}

// ignorable reports err as a warning if the user ignores the check. Otherwise it
// returns err and names the flag that ignores the check.
func (o *Options) ignorable(id string, err error) error {
	switch {
	case err == nil:
		return nil
	case o.ignores(id):
		o.Notef("%v", err)
		return nil
	}
	return fmt.Errorf("%w; or ignore this check with --ignore-preflight-errors=%s", err, id)
}
