// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// ErrTooMany means that more connections match than may be listed.
var ErrTooMany = errors.New("too many connections match")

// Missing is a server whose connections could not be asked for.
type Missing struct {
	Server string
	Err    error
}

// Connections asks all servers for their connections and returns those that keep accepts, ordered by name. It fails with
// ErrTooMany if there are more than limit.
func (c *Collector) Connections(ctx context.Context, keep func(*v1alpha1.TunnelConnection) bool, limit int) ([]*v1alpha1.TunnelConnection, []Missing, error) {
	c.mu.Lock()
	byID, silent := c.latest()
	c.mu.Unlock()
	var missing []Missing
	for _, s := range silent {
		missing = append(missing, Missing{s.address, s.err})
	}
	var mu sync.Mutex
	var all []*v1alpha1.TunnelConnection
	var failed error
	var wg sync.WaitGroup
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		wg.Go(func() {
			some, err := c.connectionsOf(ctx, byID[id].asker, keep, limit)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrTooMany):
				failed = err
			case err != nil:
				missing = append(missing, Missing{id, err})
			default:
				all = append(all, some...)
			}
		})
	}
	wg.Wait()
	if failed == nil && len(all) > limit {
		failed = fmt.Errorf("%w: there are more than %d", ErrTooMany, limit)
	}
	if failed != nil {
		return nil, nil, failed
	}
	slices.SortFunc(all, func(a, b *v1alpha1.TunnelConnection) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(missing, func(a, b Missing) int { return cmp.Compare(a.Server, b.Server) })
	return all, missing, nil
}

// connectionsOf asks one server, page by page. Each page has the time of a request.
func (c *Collector) connectionsOf(ctx context.Context, asker Asker, keep func(*v1alpha1.TunnelConnection) bool, limit int) ([]*v1alpha1.TunnelConnection, error) {
	var out []*v1alpha1.TunnelConnection
	after := int64(0)
	for {
		page, err := c.page(ctx, asker, after)
		if err != nil {
			return nil, err
		}
		for i := range page.Connections {
			o := connection(page, &page.Connections[i])
			if !keep(o) {
				continue
			}
			if len(out) == limit {
				return nil, fmt.Errorf("%w: there are more than %d", ErrTooMany, limit)
			}
			out = append(out, o)
		}
		if !page.More || len(page.Connections) == 0 {
			return out, nil
		}
		after = page.Connections[len(page.Connections)-1].Serial
	}
}

func (c *Collector) page(ctx context.Context, asker Asker, after int64) (*state.Connections, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return asker.Connections(ctx, after, state.MaxLimit)
}

// connection makes the object of a connection. Its number has leading zeros, so that names are in the order of numbers.
func connection(page *state.Connections, in *state.Connection) *v1alpha1.TunnelConnection {
	o := &v1alpha1.TunnelConnection{}
	o.Name = fmt.Sprintf("%s-%012d", nameFor(page.ServerID), in.Serial)
	o.UID = uidFor("connection", page.ServerID, page.Started.String(), fmt.Sprint(in.Serial))
	o.CreationTimestamp = seconds(in.Since)
	if in.Owner != "" && len(validation.IsValidLabelValue(in.Owner)) == 0 {
		o.Labels = map[string]string{LabelNode: in.Owner}
	}
	o.Status = v1alpha1.TunnelConnectionStatus{
		ServerID: page.ServerID, AgentID: in.AgentID, NodeName: in.Owner, Destination: in.Destination, Since: seconds(in.Since),
		BytesToAgent: in.BytesToAgent, BytesFromAgent: in.BytesFromAgent, ObservedTime: seconds(page.Time),
	}
	return o
}
