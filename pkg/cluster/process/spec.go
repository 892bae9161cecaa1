// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// Spec is one program to run.
type Spec struct {
	// Name identifies the program, unique within a supervisor.
	Name string `json:"name"`
	// Path is the absolute path of the executable.
	Path string `json:"path"`
	// Args are its arguments, without the program name.
	Args []string `json:"args,omitempty"`
	// Env is added to the small environment that every program gets, as NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// LogFile receives standard output and standard error. It is appended to.
	LogFile string `json:"logFile"`
	// After names the programs that must be ready before this one is started.
	After []string `json:"after,omitempty"`
	// NeedsFiles are files that must exist and be non-empty before the program
	// is started.
	NeedsFiles []string `json:"needsFiles,omitempty"`
	// Ready determines when the program is ready. Without it, the program is
	// ready as soon as it runs.
	Ready *Probe `json:"ready,omitempty"`
	// StopTimeout is the time from SIGTERM to SIGKILL. Default 10 s.
	StopTimeout time.Duration `json:"stopTimeout,omitempty"`
}

// DefaultStopTimeout is how long a program may take to exit after SIGTERM
// before it is killed.
const DefaultStopTimeout = 10 * time.Second

// State is what a supervised program is doing.
type State string

const (
	// Waiting: a dependency is not ready yet.
	Waiting State = "waiting"
	// Running: the program runs; see Status.Ready for the result of its probe.
	Running State = "running"
	// BackingOff: the program exited by itself and will be restarted after a
	// delay.
	BackingOff State = "backing off"
	// Stopped: a client requested the stop.
	Stopped State = "stopped"
)

// Status is the status of one program.
type Status struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Ready is true if the readiness probe of the running program succeeded.
	Ready bool `json:"ready"`
	// PID is 0 unless State is Running.
	PID int `json:"pid,omitempty"`
	// Since is when the state was entered.
	Since time.Time `json:"since"`
	// Restarts counts the unexpected exits since the supervisor was started.
	Restarts int `json:"restarts"`
	// Reason is why the program waits, or how it last exited.
	Reason string `json:"reason,omitempty"`
	// RSSBytes is the resident memory of the process.
	RSSBytes int64 `json:"rssBytes,omitempty"`
	// LogFile is where its output goes.
	LogFile string `json:"logFile"`
}

// Validate returns the first error in a set of programs: names that are empty
// or duplicate, relative paths, unknown or circular dependencies.
func Validate(specs []Spec) error {
	after := map[string][]string{}
	for _, s := range specs {
		if s.Name == "" {
			return errors.New("a program has no name")
		}
		if _, twice := after[s.Name]; twice {
			return fmt.Errorf("program %q is listed twice", s.Name)
		}
		if !filepath.IsAbs(s.Path) {
			return fmt.Errorf("program %q: path %q is not absolute", s.Name, s.Path)
		}
		if !filepath.IsAbs(s.LogFile) {
			return fmt.Errorf("program %q: log file %q is not absolute", s.Name, s.LogFile)
		}
		after[s.Name] = s.After
	}
	for name := range after {
		if err := checkOrder(after, name, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkOrder follows the dependencies of name and refuses unknown names and
// cycles.
func checkOrder(after map[string][]string, name string, path []string) error {
	if slices.Contains(path, name) {
		return fmt.Errorf("programs wait for each other in a circle: %v", append(path, name))
	}
	for _, dep := range after[name] {
		if _, ok := after[dep]; !ok {
			return fmt.Errorf("program %q waits for %q, which does not exist", name, dep)
		}
		if err := checkOrder(after, dep, append(slices.Clone(path), name)); err != nil {
			return err
		}
	}
	return nil
}
