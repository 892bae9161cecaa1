// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Names of the calls that need a server of the check's own.
const (
	callServiceProxy = "service-proxy"
	callWebhook      = "webhook"
)

// tunnelCall is one kind of call that must go through the tunnel. "tunnel-" and its name are the ID of the check that makes it alone.
type tunnelCall struct {
	name string
	do   func(ctx context.Context) error
}

// agentsDown proves tunneling from the other side. With all agents stopped the same calls fail, with a clear error and in time; with the agents
// back they all work again.
func agentsDown(ctx context.Context, s *Scope) error {
	if s.Parts == nil {
		return Skip("stopping Konnectivity agents is not supported on this cluster")
	}
	calls, err := s.tunnelCalls(ctx)
	if err != nil {
		return err
	}
	return s.withoutAgents(ctx, calls)
}

func (s *Scope) withoutAgents(ctx context.Context, calls []tunnelCall) error {
	for _, c := range calls {
		if err := s.works(ctx, c); err != nil {
			return WithHint(fmt.Errorf("%s failed before any agent was stopped: %w", c.name, err), "%s", callHint(err))
		}
	}
	s.Defer("start the agents", s.Parts.StartAgents)
	if err := s.Parts.StopAgents(ctx); err != nil {
		return fmt.Errorf("stop the agents: %w", err)
	}
	s.waitNoBackends(ctx)
	if err := s.allFailClearly(ctx, calls); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.Parts.StartAgents(ctx); err != nil {
		return fmt.Errorf("start the agents: %w", err)
	}
	return s.allRecover(ctx, calls, begin)
}

// works makes a call until it works. The Service of a webhook is new: until kube-proxy has programmed its address on the agent's node, a connection
// to it may leave the cluster.
func (s *Scope) works(ctx context.Context, c tunnelCall) error {
	ctx, cancel := context.WithTimeout(ctx, s.times.programmed)
	defer cancel()
	return waitFor(ctx, s.times.again, c.do)
}

// waitNoBackends gives the servers a moment to notice that the agents are gone: a dial that a server hands to an agent at the moment when the agent
// dies is lost, and only times out. waitNoBackends gives up without an error: the metrics may be unreadable because they too are read through the
// tunnel.
func (s *Scope) waitNoBackends(ctx context.Context) {
	if s.ServerMetrics == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.times.notice)
	defer cancel()
	begin := time.Now()
	err := waitFor(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		text, err := s.ServerMetrics(ctx)
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		parsed, err := parseMetrics(text)
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if n, _ := parsed.sum(metricServerBackends, nil); n > 0 {
			return fmt.Errorf("%g agents are still connected", n)
		}
		return nil
	})
	s.Detail("server-noticed-after", "%.1f s", time.Since(begin).Seconds())
	if err != nil {
		s.Detail("server-noticed-after", "not within %s: %v", s.times.notice, err)
	}
}

func (s *Scope) tunnelCalls(ctx context.Context) ([]tunnelCall, error) {
	pod, err := s.probePod(ctx)
	if err != nil {
		return nil, err
	}
	var h *hook // made below, if a call needs it
	calls := slices.DeleteFunc([]tunnelCall{
		{"logs", func(ctx context.Context) error { return s.readLogs(ctx, pod) }},
		{"exec", func(ctx context.Context) error { return s.exec(ctx, pod) }},
		{"port-forward", func(ctx context.Context) error { return s.portForward(ctx, pod) }},
		{"node-proxy", func(ctx context.Context) error { return s.nodeHealthz(ctx, pod.Spec.NodeName) }},
		{callServiceProxy, func(ctx context.Context) error { return s.serviceProxyEcho(ctx, h) }},
		{callWebhook, func(ctx context.Context) error { return s.callWebhook(ctx, h) }},
	}, func(c tunnelCall) bool {
		return s.switchedOff(Check{ID: "tunnel-" + c.name, Component: ComponentTunnel}) != ""
	})
	needs := func(name string) bool {
		return slices.ContainsFunc(calls, func(c tunnelCall) bool { return c.name == name })
	}
	if needs(callServiceProxy) || needs(callWebhook) {
		if h, err = s.startHook(ctx); err != nil {
			return nil, err
		}
	}
	if needs(callWebhook) {
		if err := s.registerHook(ctx, h); err != nil {
			return nil, err
		}
	}
	if needs(callServiceProxy) {
		if err := s.standInPod(ctx, h); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// allFailClearly makes all calls at once and judges how each fails.
func (s *Scope) allFailClearly(ctx context.Context, calls []tunnelCall) error {
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { errs[i] = s.failsClearly(ctx, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Scope) failsClearly(ctx context.Context, c tunnelCall) error {
	callCtx, cancel := context.WithTimeout(ctx, s.times.clear)
	defer cancel()
	begin := time.Now()
	err := c.do(callCtx)
	took := time.Since(begin)
	if err == nil {
		return WithHint(fmt.Errorf("%s still works with all agents stopped", c.name), "the call does not go through the tunnel, or an agent still runs")
	}
	if callCtx.Err() != nil {
		return WithHint(fmt.Errorf("%s hung for %s with all agents stopped, instead of failing within kube-apiserver's dial timeout of 30 s", c.name, took.Round(time.Second)),
			"konnectivity-server must answer a dial at once when it has no agent (limit: --backend-dial-timeout)")
	}
	if !namesTunnel(err) {
		return fmt.Errorf("%s failed with all agents stopped, but its error does not mention the tunnel: %w", c.name, err)
	}
	s.Detail("down-"+c.name, "failed after %.1f s: %s", took.Seconds(), lastWords(err))
	return nil
}

// namesTunnel says whether an error tells its reader where to look: at the proxy, its agents, or the dialing.
func namesTunnel(err error) bool {
	text := strings.ToLower(err.Error())
	for _, word := range []string{"agent", "tunnel", "proxy", "dial", "backend", "connection"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// lastWords shortens an error to its last part, which is the cause.
func lastWords(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if parts := strings.Split(text, ": "); len(parts) > 2 {
		text = strings.Join(parts[len(parts)-2:], ": ")
	}
	if len(text) > 160 {
		text = text[:157] + "..."
	}
	return text
}

// allRecover repeats each call until it works and measures from begin.
func (s *Scope) allRecover(ctx context.Context, calls []tunnelCall, begin time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.RecoveryLimit)
	defer cancel()
	errs := make([]error, len(calls))
	took := make([]time.Duration, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			errs[i] = waitFor(ctx, 200*time.Millisecond, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, s.times.try)
				defer cancel()
				return c.do(ctx)
			})
			took[i] = time.Since(begin)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s did not recover within %s after the agents were started: %w", c.name, s.RecoveryLimit, errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	s.Detail("recovered-after", "%.1f s (limit %s)", took[len(took)-1].Seconds(), s.RecoveryLimit)
	return nil
}
