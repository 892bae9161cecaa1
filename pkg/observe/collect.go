// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

type certificate = *x509.Certificate

// collector fills a Snapshot. Sources of one round run at the same time, and write to different fields.
type collector struct {
	Target
	cfg    *rest.Config
	client kubernetes.Interface
	s      *Snapshot
	mu     sync.Mutex
}

// errDown is why everything is unknown without an API server.
var errDown = errors.New("the API server does not answer")

// source reads one thing within the limit.
type source func(ctx context.Context)

// run reads in rounds: a later one needs what an earlier one found.
func (c *collector) run(ctx context.Context) {
	s := c.s
	c.round(ctx, into(&s.Reach, c.reach), into(&s.Proxy, c.proxy), into(&s.ClientCert, c.clientCert))
	if s.Reach.Err != nil {
		c.down()
		c.round(ctx, into(&s.Programs, c.localPrograms))
		c.round(ctx, into(&s.Node, c.hostFacts)) // of the API server among the programs
		return
	}
	c.round(ctx, c.objects()...)
	var pods Fact[found]
	second := []source{into(&pods, c.programs), into(&s.APIServers, c.apiServers), into(&s.Services, c.services)}
	if !c.Brief {
		second = append(second, into(&s.Refusals, c.refusals), into(&s.Namespaces, c.namespaces))
	}
	c.round(ctx, second...)
	s.Programs, s.Pods = Fact[[]Program]{pods.Value.programs, pods.Err, pods.Read}, Fact[[]corev1.Pod]{pods.Value.pods, pods.Err, pods.Read}
	c.round(ctx, c.probes()...)
	c.s.Taken = time.Now()
}

// down marks what no source reads without an API server.
func (c *collector) down() {
	s := c.s
	for _, err := range []*error{
		&s.Ready.Err, &s.Version.Err, &s.Denied.Err, &s.Nodes.Err, &s.NodeLeases.Err, &s.Pods.Err, &s.Pending.Err, &s.Scheduled.Err, &s.Deployments.Err, &s.DaemonSets.Err, &s.Refusals.Err,
		&s.Leases.Err, &s.PDBs.Err, &s.Policies.Err, &s.CSRs.Err, &s.FlowSchemas.Err, &s.Namespaces.Err, &s.Accounts.Err, &s.Authentication.Err, &s.ClusterCAs.Err,
		&s.Configurations.Err, &s.Mutating.Err, &s.Validating.Err, &s.APIServices.Err, &s.CRDs.Err, &s.Programs.Err, &s.APIServers.Err, &s.Services.Err,
		&s.Bound.Err, &s.APIServerMetrics.Err, &s.TunnelState.Err, &s.Reviews.Err, &s.OtherReviews.Err, &s.Preflight.Err, &s.Blocked.Err, &s.Missing.Err,
	} {
		*err = errDown
	}
}

// round runs the sources at the same time, at most as many as one API server easily serves. There are fewer sources of objects than that, so that
// a slow API server delays none of them by the time of another.
func (c *collector) round(ctx context.Context, sources ...source) {
	const together = 32
	var all sync.WaitGroup
	turns := make(chan struct{}, together)
	for _, read := range sources {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, c.Limit)
			defer cancel()
			read(ctx)
		})
	}
	all.Wait()
}

// into makes a source of a function.
func into[T any](fact *Fact[T], read func(context.Context) (T, error)) source {
	return func(ctx context.Context) { *fact = inTime(ctx, read) }
}

// grace is what a read gets to end by itself and say why, after its time is up.
const grace = 250 * time.Millisecond

// inTime ends with ctx whatever read does: some libraries take no context. Nothing but its result may leave read, since it may end later.
func inTime[T any](ctx context.Context, read func(context.Context) (T, error)) Fact[T] {
	done := make(chan Fact[T], 1)
	go func() {
		v, err := guarded(ctx, read)
		done <- Fact[T]{Value: v, Err: err, Read: time.Now()}
	}()
	var fact Fact[T]
	select {
	case fact = <-done:
	case <-ctx.Done():
		select {
		case fact = <-done:
		case <-time.After(grace):
			fact.Err = ctx.Err()
		}
	}
	if errors.Is(fact.Err, context.DeadlineExceeded) || fact.Err != nil && ctx.Err() != nil {
		fact.Err = fmt.Errorf("no answer in time: %w", fact.Err)
	}
	return fact
}

// guarded is read whose panic is an error.
func guarded[T any](ctx context.Context, read func(context.Context) (T, error)) (v T, err error) {
	defer Recovered(&err)
	return read(ctx)
}

// list makes a source of a List call.
func list[T any, L any](fact *Fact[[]T], what string, call func(context.Context) (*L, error), items func(*L) []T) source {
	return into(fact, func(ctx context.Context) ([]T, error) {
		l, err := call(ctx)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
		return items(l), nil
	})
}

// absent is a Fact that does not apply to this cluster.
func absent[T any](format string, args ...any) (T, error) { //nolint:unparam // callers return both results
	var none T
	return none, check.Skip(format, args...)
}
