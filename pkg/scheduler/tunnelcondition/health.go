// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// written counts writes of the condition by how they ended.
var written = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem: "fairlead_tunnel_condition", Name: "writes_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes of the nodes' condition TunnelReady, by their result (written, failed).",
}, []string{"result"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(written) })

// listen serves probes and metrics until the server is closed or ctx ends.
func listen(ctx context.Context, address string, c *Controller) (*http.Server, error) {
	registerMetrics()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := httplimits.Short.Server(handler(c))
	go func() {
		if err := server.Serve(httplimits.Short.Listener(listener)); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Probes are not served any more")
		}
	}()
	return server, nil
}

// handler answers probes: the controller is ready when it knows all nodes and agents, and alive while no worker is
// stuck.
func handler(c *Controller) http.Handler {
	mux := http.NewServeMux()
	say := func(ask func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := ask(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.Handle("/readyz", say(c.ready))
	mux.Handle("/livez", say(c.alive))
	mux.Handle("/metrics", legacyregistry.Handler())
	return mux
}

// note records that a worker processes a node, until done is called.
func (c *Controller) note(name string) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy[name] = c.now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.busy, name)
	}
}

// ready fails until all nodes and agents are known.
func (c *Controller) ready() error {
	if !c.known.Load() {
		return errors.New("nodes and agents are not all known yet")
	}
	return nil
}

// alive fails when a worker is stuck.
func (c *Controller) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, since := range c.busy {
		if c.now().Sub(since) > stuck {
			return fmt.Errorf("node %s has been worked at since %s", name, since.Format(time.RFC3339))
		}
	}
	return nil
}
