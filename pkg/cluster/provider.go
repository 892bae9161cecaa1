// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Provider manages clusters of one kind. All providers share one directory of
// clusters, and each handles only its own; see package providers.
type Provider interface {
	// Name is the provider's name in --provider.
	Name() string
	// Up creates a cluster, starts a stopped one, or finds it running.
	Up(ctx context.Context, o UpOptions) error
	// Down removes a cluster, or what a killed command left of it. It fails with
	// ErrNotFound if there was nothing at all.
	Down(ctx context.Context, o DownOptions) error
	// Status returns the status of a cluster. It fails with ErrNotFound or
	// ErrIncomplete.
	Status(ctx context.Context, name string) (Status, error)
	// Kubeconfig returns the administrator's kubeconfig, with the context's name.
	Kubeconfig(name string) ([]byte, error)
	// CheckEnv returns what checks need to know about a cluster of this name, or
	// nil if config points to another cluster.
	CheckEnv(ctx context.Context, name string, config *rest.Config) (*check.Env, error)
}

// UpOptions configure the cluster to bring up, for any provider. Settings that
// only one provider has are passed when that provider is created.
type UpOptions struct {
	// Name of the cluster.
	Name string
	// Bundle configures scheduler and tunnel. Nil means the default bundle for a
	// new cluster, and its own bundle for an existing one.
	Bundle *v1alpha1.Bundle
	// Operator runs the operator in a new cluster.
	Operator bool
	// APIServerPort is the loopback port of the API server; 0 chooses a free one.
	APIServerPort int
	// Retain keeps what a failed Up has created.
	Retain bool
	// Kubeconfig is the file to which the cluster's context is added; "" means
	// the user's default file.
	Kubeconfig string
	// Progress receives the steps.
	Progress progress.Reporter
}

// DownOptions select the cluster to remove.
type DownOptions struct {
	// Name of the cluster.
	Name string
	// Kubeconfig is the file that has the cluster's context; "" means the user's
	// default file.
	Kubeconfig string
	// Progress receives the steps.
	Progress progress.Reporter
}

// Status is a provider's report on one cluster. Encoded as JSON it has the fields
// of Summary and fields of the provider's own.
type Status interface {
	// Summarize returns the part that all providers report.
	Summarize() Summary
	// WriteTable prints it for people.
	WriteTable(w io.Writer) error
	// Problem says in one line why the cluster is not healthy and what to do or
	// where to look; "" for a healthy cluster.
	Problem() string
}

// Summary is the part of a status that every provider reports.
type Summary struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	// KubernetesVersion is the control plane's; "" for a cluster whose state
	// cannot be read.
	KubernetesVersion string    `json:"kubernetesVersion,omitempty"`
	Created           time.Time `json:"created,omitzero"`
	// Nodes is the number of all nodes.
	Nodes int `json:"nodes,omitempty"`
	// Dir is the state directory, Context the kubeconfig context, Server the API
	// server's URL.
	Dir     string `json:"dir"`
	Context string `json:"context"`
	Server  string `json:"server,omitempty"`
	// Running means that at least one part runs; Healthy that all parts are
	// ready.
	Running bool `json:"running"`
	Healthy bool `json:"healthy"`
	// RSSBytes is the resident memory of all its processes on this machine.
	RSSBytes int64 `json:"rssBytes,omitempty"`
}

// Summarize implements Status for types that embed a Summary.
func (s Summary) Summarize() Summary { return s }

// Health returns the state of a cluster in one word.
func (s Summary) Health() string {
	switch {
	case s.KubernetesVersion == "":
		return "incomplete"
	case s.Healthy:
		return "ready"
	case s.Running:
		return "unhealthy"
	}
	return "stopped"
}

var (
	// ErrNotFound is returned if there is no cluster of that name.
	ErrNotFound = errors.New("no such cluster")
	// ErrIncomplete is returned if a command left the state directory incomplete.
	ErrIncomplete = errors.New("the cluster's state is incomplete")
	// ErrInterrupted is returned if the context ended before Up had finished.
	ErrInterrupted = errors.New("interrupted")
	// ErrOtherProvider is returned if another provider has a cluster of that
	// name.
	ErrOtherProvider = errors.New("another provider has a cluster of this name")
)
