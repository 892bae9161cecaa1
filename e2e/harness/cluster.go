// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// The providers.
const (
	Embedded = "embedded"
	Kind     = "kind"
)

// Cluster is one that fairlead up has made.
type Cluster struct {
	// KeepConnections lets kube-apiserver keep its connections to the webhook and the aggregated API of the test server, as
	// most webhooks do. By default each call is a dial. Set it before StartServer.
	KeepConnections bool
	*Home
	// Name and Provider are the flags of "up".
	Name, Provider string
	// Config and Client reach the API server as its administrator.
	Config *rest.Config
	Client kubernetes.Interface
	// Nodes runs commands in the nodes of a kind cluster; nil in an embedded one.
	Nodes *Nodes
	// hostIP is where Pods of an embedded cluster reach this machine.
	hostIP string
	// tool is the path of testpod as a command of a Pod.
	tool string
	// plain says that kind created it without fairlead.
	plain bool
	// closers stop the processes that run on this machine for the cluster.
	closers []func()
}

// Options say what cluster to make.
type Options struct {
	// Name tells clusters of several test packages apart.
	Name string
	// ControlPlanes and Workers are for kind; defaults: 1 and 2. An embedded cluster
	// has three nodes.
	ControlPlanes, Workers int
	// Bundle is YAML without apiVersion and kind; empty: the default bundle.
	Bundle string
	// Operator runs the operator in the cluster.
	Operator bool
	// Verify runs the quick checks at the end of up, as users do.
	Verify bool
	// Plain lets kind make the cluster, without fairlead.
	Plain bool
	// Bare makes no cluster: the tests make theirs in the home directory.
	Bare bool
	// Only is the one provider that has what the tests need; empty: any.
	Only string
}

// settleLimit is how long an interrupted up gets to remove what it has made.
const settleLimit = 30 * time.Second

// upLimit bounds up: an embedded cluster may build Kubernetes first.
const upLimit = 25 * time.Minute

// Up makes a cluster for tests. On error nothing is left but the home directory.
func Up(ctx context.Context, h *Home, provider string, o Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	if o.Plain {
		return PlainUp(ctx, h)
	}
	args := []string{"up", "--name", o.Name}
	if !o.Verify {
		args = append(args, "--no-verify")
	}
	if o.Operator {
		args = append(args, "--operator")
	}
	if provider == Kind {
		args = append(args, "--provider", Kind, "--image", NodeImage(), "--control-planes", fmt.Sprint(max(1, o.ControlPlanes)), "--workers", fmt.Sprint(max(2, o.Workers)))
	}
	if o.Bundle != "" {
		file := filepath.Join(h.Dir, "bundle.yaml")
		if err := os.WriteFile(file, []byte(bundletest.File(o.Bundle)), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--filename", file)
	}
	cmd, stdout, stderr := h.Command(ctx, args...)
	if provider == Kind {
		// An interrupted "up" removes what it has created; a killed one would leave
		// commands of the container runtime running.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = settleLimit
	}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("fairlead %v: %w\n%s%s", args, err, stdout, stderr)
	}
	c := &Cluster{Home: h, Name: o.Name, Provider: provider}
	if err := c.connect(ctx); err != nil {
		return c, err
	}
	return c, c.prepareTool(ctx)
}

// Find returns the cluster of a home directory that an earlier run has kept.
func Find(ctx context.Context, bin, dir, provider string, o Options) (*Cluster, error) {
	h, err := homeAt(bin, dir)
	if err != nil {
		return nil, err
	}
	if o.Plain || o.Bare {
		return nil, errors.New("E2E_HOME is for a cluster that fairlead has made before the tests: leave it out")
	}
	name, _, _ := strings.Cut(o.Name, "-") // the rest is the process's number
	found := slices.DeleteFunc(h.Clusters(), func(c string) bool { return !strings.HasPrefix(c, name+"-") })
	if len(found) != 1 {
		return nil, fmt.Errorf("E2E_HOME=%s: want one cluster of name %s-…, found %v", dir, name, found)
	}
	c := &Cluster{Home: h, Name: found[0], Provider: provider}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, c.prepareTool(ctx)
}

// connect reads the kubeconfig and finds the nodes.
func (c *Cluster) connect(ctx context.Context) error {
	text, err := c.Must(ctx, "kubeconfig", "--name", c.Name)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil {
		return err
	}
	// The default of 5 requests a second would make the tests measure the client.
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if err := c.use(config); err != nil {
		return err
	}
	if c.Provider == Kind {
		c.Nodes, err = findNodes(c.kindName())
		return err
	}
	status, err := c.Try(ctx, "status", "--name", c.Name, "-o", "json") // which also shows what is not healthy yet
	if err != nil {
		return err
	}
	var s struct{ Components struct{ HostIP string } }
	if err := json.Unmarshal([]byte(status.Stdout), &s); err != nil || s.Components.HostIP == "" {
		return fmt.Errorf("status tells no address of the machine: %w", errors.Join(err, errors.New(status.Stdout+status.Stderr)))
	}
	c.hostIP = s.Components.HostIP
	return nil
}

func (c *Cluster) use(config *rest.Config) (err error) {
	c.Config = config
	c.Client, err = kubernetes.NewForConfig(config)
	return err
}

// At returns the cluster as seen through one of its API servers.
func (c *Cluster) At(host string) (*Cluster, error) {
	other := *c
	config := rest.CopyConfig(c.Config)
	config.Host = host
	return &other, other.use(config)
}

// Simulated says that no container is started in this cluster: kwok plays the
// nodes. What that means for logs, exec and the rest: docs/embedded.md.
func (c *Cluster) Simulated() bool { return c.Provider == Embedded }

// Context is the name of the cluster's kubeconfig context.
func (c *Cluster) Context() string {
	if c.plain {
		return "kind-" + c.Name
	}
	return contextOf(c.Name)
}

// contextOf returns the name of the context that fairlead gives a cluster,
// which is also the name of the kind cluster.
func contextOf(name string) string { return "fairlead-" + name }

// kindName is the name of the cluster in kind.
func (c *Cluster) kindName() string {
	if c.plain {
		return c.Name
	}
	return c.Context()
}

// Down removes the cluster.
func (c *Cluster) Down(ctx context.Context) error {
	c.Close()
	if c.plain {
		return c.plainDown()
	}
	_, err := c.Must(ctx, "down", "--name", c.Name)
	return err
}

// SaveLogs copies the logs of nodes or processes into dir.
func (c *Cluster) SaveLogs(dir string) error {
	if c.Provider == Kind {
		return saveKindLogs(c.kindName(), dir)
	}
	for _, part := range []string{"logs", "config", "programs.json", "cluster.json"} {
		from := filepath.Join(c.StateDir(c.Name), part)
		if err := copyTree(from, filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	return nil
}

func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
