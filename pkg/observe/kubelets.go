// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

const (
	// MaxKubelets bounds how many kubelets are asked.
	MaxKubelets = 1000
	// kubeletsTogether is how many are asked at the same time.
	kubeletsTogether = 32
	// briefKubelets is how many are asked for an overview, which asks only whether any answers.
	briefKubelets = 3
)

// kubelets asks each ready node's kubelet for its health, the way that logs and exec take. It does not where no agent could answer: every such
// call would be a failed dial in the API server's metrics, which checks count. Each kubelet that is asked gets half of the limit. No call begins
// that could not have as much, and the nodes of those calls are in Unasked.
func (c *collector) kubelets(ctx context.Context) {
	agents := Of(c.s.Programs.Value, check.RoleAgent)
	if len(agents) > 0 && !slices.ContainsFunc(agents, func(p Program) bool { return p.Ready }) {
		return
	}
	most := MaxKubelets
	if c.Brief {
		most = briefKubelets
		if len(agents)+len(c.s.Workloads(check.RoleAgent)) > 0 {
			return // an overview asks whether they answer without agents
		}
	}
	each := c.Limit / 2
	last := time.Now().Add(c.Limit - each)
	names := make(chan string)
	var all sync.WaitGroup
	for range kubeletsTogether {
		all.Go(func() {
			for name := range names {
				c.kubelet(ctx, name, each)
			}
		})
	}
	late := time.NewTimer(time.Until(last))
	defer late.Stop()
	asked := 0
	for i := range c.s.Nodes.Value {
		node := &c.s.Nodes.Value[i]
		if !NodeReady(node) {
			continue
		}
		if asked++; asked <= most && passOn(ctx, names, node.Name, last, late.C) {
			continue
		}
		c.mu.Lock()
		c.s.Unasked = append(c.s.Unasked, node.Name)
		c.mu.Unlock()
	}
	close(names)
	all.Wait()
}

// passOn gives a name to one of those that ask, if one is free before the last moment. The timer fires at that moment, once.
func passOn(ctx context.Context, names chan<- string, name string, last time.Time, late <-chan time.Time) bool {
	if !time.Now().Before(last) || ctx.Err() != nil { // a select with a free receiver could choose it
		return false
	}
	select {
	case names <- name:
		return true
	case <-ctx.Done():
	case <-late:
	}
	return false
}

func (c *collector) kubelet(ctx context.Context, node string, limit time.Duration) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("healthz").Do(limited).Error()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		c.s.Unasked = append(c.s.Unasked, node) // cut short
		return
	}
	c.s.Kubelets[node] = err
}
