package embedded

import "github.com/fairlead-dev/fairlead/pkg/cluster"

// State is what is remembered of a cluster, in Layout.StateFile.
type State struct {
	cluster.Record
	// Agents and Schedulers count Konnectivity agents and replicas of the second
	// scheduler.
	Agents     int `json:"agents"`
	Schedulers int `json:"schedulers"`
	// HostIP is where nodes are reached: an address of this machine, because the
	// API server refuses to proxy to loopback ones. Loopback on a machine without
	// any network. It is found anew at every start.
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

func (l Layout) writeState(s State) error { return cluster.WriteJSON(l.StateFile(), s) }
