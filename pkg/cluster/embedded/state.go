package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// stateVersion is raised when State or the layout change in a way that an older
// or newer fairlead cannot read.
const stateVersion = 1

// Phase says how far a cluster has come.
type Phase string

const (
	// PhaseCreating: Up has begun and not ended. Found with nobody at work, it
	// means that Up was killed.
	PhaseCreating Phase = "creating"
	// PhaseReady: Up has ended well once; the cluster can be started again.
	PhaseReady Phase = "ready"
)

// State is what is remembered of a cluster, in Layout.StateFile.
type State struct {
	// Version is stateVersion of the fairlead that wrote it.
	Version int `json:"stateVersion"`
	// Name is the cluster's name.
	Name string `json:"name"`
	// Phase is how far the cluster has come.
	Phase Phase `json:"phase"`
	// Created is when Up began.
	Created time.Time `json:"created"`
	// KubernetesVersion is the version of the control plane.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Nodes, Agents and Schedulers count simulated nodes, Konnectivity agents
	// and replicas of the second scheduler.
	Nodes      int `json:"nodes"`
	Agents     int `json:"agents"`
	Schedulers int `json:"schedulers"`
	// HostIP is where nodes are reached: an address of this machine, because the
	// API server refuses to proxy to loopback ones. Loopback on a machine without
	// any network. It is found anew at every start.
	HostIP string `json:"hostIP"`
	// Kubeconfigs are the files that got the context: Down takes it out of them.
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
	// Ports are the loopback ports by user; see portNames.
	Ports map[string]int `json:"ports"`
}

var (
	// ErrNotFound says that there is no cluster of that name.
	ErrNotFound = errors.New("no such cluster")
	// ErrIncomplete says that a state directory was left half-written.
	ErrIncomplete = errors.New("the cluster's state is incomplete")
)

// readState reads the state of a cluster. A directory without a readable state
// is ErrIncomplete: something interrupted the command that made it.
func (l Layout) readState() (State, error) {
	var s State
	if _, err := os.Stat(l.Dir); errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%w: %q: \"fairlead list\" shows what there is, \"fairlead up --name %s\" makes it", ErrNotFound, l.Name, l.Name)
	} else if err != nil {
		return s, fmt.Errorf("looking for cluster %q: %w", l.Name, err)
	}
	err := readJSON(l.StateFile(), &s)
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, os.ErrNotExist), errors.As(err, &syntax), err == nil && s.Version == 0:
		return s, l.incomplete("it has no readable " + l.StateFile())
	case err != nil:
		return s, err
	case s.Version != stateVersion:
		return s, fmt.Errorf("cluster %q was made by another version of fairlead (state format %d, this one knows %d): remove it with \"fairlead down --name %s\" and make it anew",
			l.Name, s.Version, stateVersion, l.Name)
	}
	return s, nil
}

// incomplete is the error for a half-written state directory.
func (l Layout) incomplete(why string) error {
	return fmt.Errorf("%w: %s: %s: an earlier \"up\" was cut off; run \"fairlead down --name %s\" and then \"up\" again", ErrIncomplete, l.Dir, why, l.Name)
}

func (l Layout) writeState(s State) error { return writeJSON(l.StateFile(), s) }
