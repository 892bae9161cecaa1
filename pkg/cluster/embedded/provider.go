package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// Provider makes and removes embedded clusters below one directory.
type Provider struct {
	root string
}

// NewProvider returns a provider for the user's clusters; see Root.
func NewProvider() (*Provider, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return &Provider{root: root}, nil
}

// NewProviderAt returns a provider for the clusters below another directory.
func NewProviderAt(root string) *Provider { return &Provider{root: root} }

// Defaults of UpOptions.
const (
	DefaultNodes  = 3
	DefaultAgents = 2
)

// UpOptions say what cluster to bring up.
type UpOptions struct {
	// Name of the cluster.
	Name string
	// Bundle configures scheduler and tunnel. Nil means the default bundle for a
	// new cluster, and its own one for a cluster that exists.
	Bundle *v1alpha1.Bundle
	// Nodes and Agents are how many simulated nodes and Konnectivity agents to run;
	// 0 means the default for a new cluster, and as many as it has for an existing one.
	Nodes, Agents int
	// APIServerPort is the loopback port of the API server; 0 chooses a free one.
	APIServerPort int
	// Retain keeps what a failed Up has made.
	Retain bool
	// Kubeconfig is the file that gets the cluster's context; "" means the user's usual one.
	Kubeconfig string
	// Binaries says where the programs come from.
	Binaries binaries.Options
	// Progress is told about the steps.
	Progress cluster.Progress
}

// limits that keep a typing error from filling the machine.
const (
	maxNodes  = 5000
	maxAgents = 64
)

func (o *UpOptions) complete() error {
	if o.Progress == nil {
		o.Progress = cluster.Silent
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return fmt.Errorf("--nodes %d: choose 1 to %d", o.Nodes, maxNodes)
	}
	if o.Agents < 0 || o.Agents > maxAgents {
		return fmt.Errorf("--agents %d: choose 1 to %d", o.Agents, maxAgents)
	}
	if o.APIServerPort != 0 && (o.APIServerPort < 1024 || o.APIServerPort > 65535) {
		return fmt.Errorf("--api-server-port %d: choose 1024 to 65535", o.APIServerPort)
	}
	if o.Bundle != nil && o.Bundle.Konnectivity.Transport.TCP != nil {
		return errors.New("konnectivity.transport.tcp: an embedded cluster has its API server and Konnectivity server on one machine: set konnectivity.transport.uds instead")
	}
	return nil
}

// Status is what Provider.Status tells of a cluster.
type Status struct {
	State `json:",inline"`
	// Dir is the state directory.
	Dir string `json:"dir"`
	// Context is the kubeconfig context.
	Context string `json:"context"`
	// Server is the API server's URL.
	Server string `json:"server,omitempty"`
	// Running says that the supervisor answers; Healthy that all programs are ready.
	Running bool `json:"running"`
	Healthy bool `json:"healthy"`
	// RSSBytes is the resident memory of all programs and the supervisor.
	RSSBytes int64 `json:"rssBytes,omitempty"`
	// SupervisorRSSBytes is the supervisor's part of it.
	SupervisorRSSBytes int64 `json:"supervisorRSSBytes,omitempty"`
	// Supervisor is its process id.
	Supervisor int              `json:"supervisorPID,omitempty"`
	Processes  []process.Status `json:"processes,omitempty"`
}

// Status looks at one cluster; ErrNotFound and ErrIncomplete as Up has them.
func (p *Provider) Status(ctx context.Context, name string) (Status, error) {
	l, err := NewLayout(p.root, name)
	if err != nil {
		return Status{}, err
	}
	state, err := l.readState()
	if err != nil {
		return Status{}, err
	}
	s := Status{State: state, Dir: l.Dir, Context: cluster.ContextName(name)}
	s.Server = (&plan{Layout: l, state: state}).serverURL()
	report, err := process.NewClient(l.SupervisorSocket()).Status(ctx)
	switch {
	case errors.Is(err, process.ErrNotRunning):
		return s, nil
	case errors.Is(err, process.ErrHangs):
		s.Running = true // and not healthy
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Running, s.Supervisor, s.Processes, s.RSSBytes = true, report.PID, report.Processes, report.TotalRSSBytes()
	s.SupervisorRSSBytes = report.RSSBytes
	s.Healthy = !slices.ContainsFunc(report.Processes, func(ps process.Status) bool { return !ps.Ready })
	return s, nil
}

// List looks at all clusters, by name. One whose state cannot be read has no
// Version.
func (p *Provider) List(ctx context.Context) ([]Status, error) {
	entries, err := os.ReadDir(p.root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	list := []Status{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		s, err := p.Status(ctx, e.Name())
		if err != nil {
			s = Status{State: State{Name: e.Name()}, Dir: filepath.Join(p.root, e.Name()), Context: cluster.ContextName(e.Name())}
		}
		list = append(list, s)
	}
	return list, nil
}

// Kubeconfig returns the administrator's kubeconfig of a cluster, with the
// cluster's context name.
func (p *Provider) Kubeconfig(name string) ([]byte, error) {
	l, err := NewLayout(p.root, name)
	if err != nil {
		return nil, err
	}
	if _, err := l.readState(); err != nil {
		return nil, err
	}
	return l.userKubeconfig()
}

// storedBundle is the bundle that a cluster was made from.
func (l Layout) storedBundle() (*v1alpha1.Bundle, error) {
	data, err := os.ReadFile(l.BundleFile())
	if err != nil {
		return nil, l.incomplete("its bundle cannot be read: " + err.Error())
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", l.BundleFile(), err)
	}
	return b, nil
}

// fairlead is the path of the running executable, for the supervisor and the node gate.
func fairlead() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the path of this program: %w", err)
	}
	return path, nil
}

// cleanupTime bounds what is done after an interrupt or a failure.
const cleanupTime = 60 * time.Second
