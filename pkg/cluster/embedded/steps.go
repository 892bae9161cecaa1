// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// startLimit bounds the wait for a group of programs. On two busy cores the
// control plane is ready within 10 s.
const startLimit = 3 * time.Minute

// maxRestarts is how often a program may exit before Up gives up on it. The
// first exits are often a race with the programs that it depends on.
const maxRestarts = 4

// followUp waits for the programs, which the supervisor starts by itself, and
// creates the objects that they need in the API server. Every step is
// idempotent.
func (p *plan) followUp(ctx context.Context, reporter progress.Reporter) error {
	for _, step := range p.steps() {
		if step.skip {
			continue
		}
		began := time.Now()
		err := progress.Step(reporter, step.title, func() (string, error) {
			result, err := step.run(ctx, reporter)
			if result != "" {
				result += ", "
			}
			return result + fmt.Sprintf("%.1fs", time.Since(began).Seconds()), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type step struct {
	title string
	run   func(context.Context, progress.Reporter) (string, error)
	skip  bool
}

func (p *plan) steps() []step {
	var client kubernetes.Interface
	return []step{
		{title: "Starting the control plane", run: func(ctx context.Context, pr progress.Reporter) (string, error) {
			err := p.waitReady(ctx, pr, progEtcd, progAPIServer, progControllerManager, progScheduler)
			if err != nil {
				return "", err
			}
			if client, err = newClient(p.AdminKubeconfig()); err != nil {
				return "", err
			}
			return p.state.KubernetesVersion, p.dropStaleLeases(ctx, client)
		}},
		{title: "Installing the bundle", run: func(ctx context.Context, _ progress.Reporter) (string, error) {
			var further []component.Object
			if p.began.IsZero() { // the programs already ran
				var err error
				if further, err = p.tunnelAPIObjects(); err != nil {
					return "", err
				}
			}
			n, err := p.installBundle(ctx, further...)
			return progress.Count(n, "object"), err
		}},
		{title: fmt.Sprintf("Adding %s", progress.Count(p.state.Nodes, "node")), run: func(ctx context.Context, pr progress.Reporter) (string, error) {
			if err := p.waitReady(ctx, pr, progKwok, progNodeGate); err != nil {
				return "", err
			}
			return "", p.addNodes(ctx, client)
		}},
		{title: fmt.Sprintf("Starting the tunnel: server and %s", progress.Count(p.state.Agents, "agent")), skip: !p.tunnel(),
			run: func(ctx context.Context, pr progress.Reporter) (string, error) {
				return "", p.waitReady(ctx, pr, append([]string{progTunnelServer}, names(p.state.Agents, agentName)...)...)
			}},
		{title: fmt.Sprintf("Starting the second scheduler: %s", progress.Count(p.state.Schedulers, "replica")), skip: p.state.Schedulers == 0,
			run: func(ctx context.Context, pr progress.Reporter) (string, error) {
				if err := p.waitReady(ctx, pr, names(p.state.Schedulers, schedulerName)...); err != nil {
					return "", err
				}
				return "", p.waitLease(ctx, client)
			}},
		{title: "Starting the gateway", skip: !gateway.Enabled(p.bundle), run: func(ctx context.Context, pr progress.Reporter) (string, error) {
			return p.url("https", portGateway, ""), p.waitReady(ctx, pr, progGateway)
		}},
		{title: "Starting the tunnel's API server", skip: !tunnelapi.Enabled(p.bundle), run: p.startTunnelAPI},
		{title: "Starting the operator", skip: !p.state.Operator, run: func(ctx context.Context, pr progress.Reporter) (string, error) {
			return "kubectl get fairlead", p.waitReady(ctx, pr, progOperator)
		}},
	}
}

func names(n int, name func(int) string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = name(i)
	}
	return list
}

// waitReady waits until the named programs are ready. It gives up early on a
// program that keeps exiting.
func (p *plan) waitReady(ctx context.Context, reporter progress.Reporter, names ...string) error {
	client := process.NewClient(p.SupervisorSocket())
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errNotReady)
	defer cancel()
	// A program that already ran may have been restarted earlier, for example
	// by a check.
	base := map[string]int{}
	for _, name := range names {
		if p.began.IsZero() {
			base[name] = -1
		}
	}
	var pending process.Status
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		report, err := client.Status(ctx)
		if err != nil {
			return false, fmt.Errorf("%w; see %s", err, p.Log("supervisor"))
		}
		for _, name := range names {
			status, ok := report.Find(name)
			if !ok {
				return false, fmt.Errorf("the supervisor does not know %s: it was started by another version of fairlead: run \"fairlead down --name %s\" and \"up\"", name, p.Name)
			}
			if status.Ready {
				continue
			}
			if base[name] < 0 {
				base[name] = status.Restarts
			}
			if status.Restarts-base[name] >= maxRestarts {
				return false, fmt.Errorf("%s keeps ending (%s)%s", name, status.Reason, p.lastWords(name))
			}
			pending = status
			reporter.Detail("waiting for %s", name)
			return false, nil
		}
		return true, nil
	})
	if errors.Is(err, errNotReady) {
		return fmt.Errorf("%s is not ready after %v (%s)%s", pending.Name, startLimit, reasonOr(pending, "it runs, but its readiness check fails"), p.lastWords(pending.Name))
	}
	return err
}

var errNotReady = errors.New("not ready in time")

func reasonOr(s process.Status, fallback string) string {
	if s.Reason != "" {
		return s.Reason
	}
	return fallback
}

// readTail reads the last bytes of a file.
func readTail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(f)
}

// lastWords quotes the end of a program's log, which usually contains the
// reason.
func (p *plan) lastWords(name string) string {
	data, err := readTail(p.Log(name), 8<<10)
	if err != nil || len(data) == 0 {
		return "; its log " + p.Log(name) + " is empty"
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-5):]
	for i, line := range lines {
		if len(line) > 300 {
			lines[i] = line[:300] + "..."
		}
	}
	return "; the end of its log:\n    " + strings.Join(lines, "\n    ")
}
