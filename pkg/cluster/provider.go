package cluster

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Provider makes clusters of one kind. All providers share one directory of
// clusters, and each is told of its own ones only; see package providers.
type Provider interface {
	// Name is what --provider calls it.
	Name() string
	// Up makes a cluster, starts one that is stopped, or finds it running.
	Up(ctx context.Context, o UpOptions) error
	// Down removes a cluster, or what a killed command left of it. ErrNotFound:
	// there was nothing at all.
	Down(ctx context.Context, o DownOptions) error
	// Status looks at a cluster. ErrNotFound, ErrIncomplete.
	Status(ctx context.Context, name string) (Status, error)
	// Kubeconfig returns the administrator's kubeconfig, with the context's name.
	Kubeconfig(name string) ([]byte, error)
	// CheckEnv returns what checks need to know of a cluster of this name, or nil
	// if config leads to another one.
	CheckEnv(ctx context.Context, name string, config *rest.Config) (*check.Env, error)
}

// UpOptions say what cluster to bring up, whatever its provider. What only one
// provider has is given to that provider when it is made.
type UpOptions struct {
	// Name of the cluster.
	Name string
	// Bundle configures scheduler and tunnel. Nil means the default bundle for a
	// new cluster, and its own one for a cluster that exists.
	Bundle *v1alpha1.Bundle
	// APIServerPort is the loopback port of the API server; 0 chooses a free one.
	APIServerPort int
	// Retain keeps what a failed Up has made.
	Retain bool
	// Kubeconfig is the file that gets the cluster's context; "" means the user's usual one.
	Kubeconfig string
	// Progress is told about the steps.
	Progress Progress
}

// DownOptions say which cluster to remove.
type DownOptions struct {
	// Name of the cluster.
	Name string
	// Kubeconfig is the file that has the cluster's context; "" means the user's usual one.
	Kubeconfig string
	// Progress is told about the steps.
	Progress Progress
}

// Status is what a provider tells of one cluster. Encoded as JSON it has the
// fields of Summary and more that are the provider's own.
type Status interface {
	// Summarize is what all providers tell.
	Summarize() Summary
	// WriteTable shows it to people.
	WriteTable(w io.Writer) error
	// Problem says in one line what keeps the cluster from being healthy and what
	// to do or where to look; "" for a healthy one.
	Problem() string
}

// Summary is what is known of any cluster.
type Summary struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	// KubernetesVersion is the control plane's; "" for a cluster whose state
	// cannot be read.
	KubernetesVersion string    `json:"kubernetesVersion,omitempty"`
	Created           time.Time `json:"created,omitzero"`
	// Nodes counts them all.
	Nodes int `json:"nodes,omitempty"`
	// Dir is the state directory, Context the kubeconfig context, Server the API
	// server's URL.
	Dir     string `json:"dir"`
	Context string `json:"context"`
	Server  string `json:"server,omitempty"`
	// Running says that at least a part runs; Healthy that all parts are ready.
	Running bool `json:"running"`
	Healthy bool `json:"healthy"`
	// RSSBytes is the resident memory of all its processes on this machine.
	RSSBytes int64 `json:"rssBytes,omitempty"`
}

// Summarize implements a part of Status for those that embed a Summary.
func (s Summary) Summarize() Summary { return s }

// Health is the state of a cluster in one word.
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
	// ErrNotFound says that there is no cluster of that name.
	ErrNotFound = errors.New("no such cluster")
	// ErrIncomplete says that a state directory was left half-written.
	ErrIncomplete = errors.New("the cluster's state is incomplete")
	// ErrInterrupted says that the context of Up ended before it had.
	ErrInterrupted = errors.New("interrupted")
	// ErrOtherProvider says that a cluster of the name exists with another provider.
	ErrOtherProvider = errors.New("another provider has a cluster of this name")
)
