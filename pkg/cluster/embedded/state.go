// SPDX-License-Identifier: Apache-2.0

package embedded

import "github.com/fairlead-dev/fairlead/pkg/cluster"

// State is what is stored about a cluster, in Layout.StateFile.
type State struct {
	cluster.Record
	// Agents and Schedulers count Konnectivity agents and replicas of the second
	// scheduler.
	Agents     int `json:"agents"`
	Schedulers int `json:"schedulers"`
	// Operator means that the operator runs.
	Operator bool `json:"operator,omitempty"`
	// HostIP is the address of the nodes: one of this machine's addresses,
	// because the API server refuses to proxy to loopback addresses. It is a
	// loopback address on a machine without any network. Every start determines
	// it again.
	HostIP string `json:"hostIP"`
	// Ports are the loopback ports by user; see portNames.
	Ports map[string]int `json:"ports"`
}

// readState reads the state of a cluster; see cluster.Home.ReadState.
func (l Layout) readState() (State, error) {
	var s State
	err := l.ReadState(&s, &s.Record)
	return s, err
}
