// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// ErrTooMany means that more connections match than may be listed.
var ErrTooMany = errors.New("too many connections match")

// ErrNoAnswer means that no server answers.
var ErrNoAnswer = errors.New("no konnectivity-server answers")

// Missing is a server that could not be asked.
type Missing struct {
	Server string // "" for servers that could not be looked for
	Err    error
}

// Of says whose things of a kind are missing, and why.
func (m Missing) Of(things string) string {
	switch {
	case m.Server == "":
		return fmt.Sprintf("%s of konnectivity-servers may be missing: %v", things, m.Err)
	case m.Err == nil:
		return fmt.Sprintf("konnectivity-server %s has not answered yet: its %s are not shown", m.Server, things)
	}
	return fmt.Sprintf("konnectivity-server %s does not show its %s: %v", m.Server, things, m.Err)
}

func byServer(a, b Missing) int { return cmp.Compare(a.Server, b.Server) }

// MaxScans is how many calls of Connections may run at a time: each may return many objects, and takes a connection to each
// server.
const MaxScans = 4

// errSilent is why a server is not asked that has stopped to show its state.
var errSilent = errors.New("it has stopped to show its state")

// Connections asks all servers for their connections and returns those that keep accepts, ordered by name. It fails with
// ErrTooMany if there are more than limit, and with ErrNoAnswer if no server answers. Servers that have stopped to answer
// are not waited for. Objects of one node share their labels, which are not to be changed. keep may be called for several
// objects at a time.
func (c *Collector) Connections(ctx context.Context, keep func(*v1alpha1.TunnelConnection) bool, limit int) ([]*v1alpha1.TunnelConnection, []Missing, error) {
	c.mu.Lock()
	byID, silent := c.latest()
	missing := c.missingLocked(silent)
	c.mu.Unlock()
	missing = append(missing, c.dropStale(byID)...)
	var mu sync.Mutex
	var all []*v1alpha1.TunnelConnection
	var failed error
	answered := 0
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
				answered++
				all = append(all, some...)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(missing, byServer)
	switch {
	case failed != nil:
	case len(all) > limit:
		failed = fmt.Errorf("%w: there are more than %d", ErrTooMany, limit)
	case answered == 0:
		failed = noAnswer(missing, "connections")
	}
	if failed != nil {
		return nil, nil, failed
	}
	slices.SortFunc(all, func(a, b *v1alpha1.TunnelConnection) int { return strings.Compare(a.Name, b.Name) })
	return all, missing, nil
}

// dropStale removes the servers that have stopped to show their state, and returns them.
func (c *Collector) dropStale(byID map[string]*server) (out []Missing) {
	now := c.cfg.Now()
	for id, s := range byID {
		if !c.fresh(s, now) {
			out = append(out, Missing{id, cmp.Or(s.err, errSilent)})
			delete(byID, id)
		}
	}
	return out
}

// Connection asks the server that a name is of for the connection. It is nil if there is none.
func (c *Collector) Connection(ctx context.Context, name string) (*v1alpha1.TunnelConnection, error) {
	of, serial, ok := splitName(name)
	if !ok {
		return nil, nil
	}
	c.mu.Lock()
	byID, silent := c.latest()
	missing := c.missingLocked(silent)
	c.mu.Unlock()
	stale := c.dropStale(byID)
	if i := slices.IndexFunc(stale, func(m Missing) bool { return nameFor(m.Server) == of }); i >= 0 {
		return nil, errors.New(stale[i].Of("connections"))
	}
	for id, s := range byID {
		if nameFor(id) != of {
			continue
		}
		page, err := c.page(ctx, s.asker, serial-1, 1)
		switch {
		case err != nil:
			return nil, errors.New(Missing{id, err}.Of("connections"))
		case len(page.Connections) == 0 || connectionName(page, &page.Connections[0]) != name:
			return nil, nil
		}
		in := &page.Connections[0]
		return connection(page, in, nodeLabels(in.Owner)), nil
	}
	if len(missing) > 0 || len(byID)+len(stale) == 0 { // one of those that are not known may be the server
		return nil, noAnswer(missing, "connections")
	}
	return nil, nil
}

// splitName returns what connectionName has made a name of.
func splitName(name string) (server string, serial int64, ok bool) {
	i := strings.LastIndexByte(name, '-')
	serial, err := strconv.ParseInt(name[i+1:], 10, 64)
	if i < 0 || err != nil || serial < 1 {
		return "", 0, false
	}
	return name[:i], serial, true
}

// maxCauses is how many servers an error names.
const maxCauses = 3

func noAnswer(missing []Missing, things string) error {
	if len(missing) == 0 {
		return fmt.Errorf("%w: %w", ErrNoAnswer, errNotReady)
	}
	err := ErrNoAnswer
	for _, m := range missing[:min(len(missing), maxCauses)] {
		err = fmt.Errorf("%w: %s", err, m.Of(things))
	}
	return err
}

// connectionsOf asks one server, page by page. Each page has the time of a request.
func (c *Collector) connectionsOf(ctx context.Context, asker Asker, keep func(*v1alpha1.TunnelConnection) bool, limit int) ([]*v1alpha1.TunnelConnection, error) {
	var out []*v1alpha1.TunnelConnection
	nodes := map[string]map[string]string{} // labels by owner: a map for each object would be a third of its memory
	after := int64(0)
	for {
		page, err := c.page(ctx, asker, after, state.MaxLimit)
		if err != nil {
			return nil, err
		}
		for i := range page.Connections {
			in := &page.Connections[i]
			if _, ok := nodes[in.Owner]; !ok {
				nodes[in.Owner] = nodeLabels(in.Owner)
			}
			o := connection(page, in, nodes[in.Owner])
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

func (c *Collector) page(ctx context.Context, asker Asker, after int64, limit int) (*state.Connections, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return asker.Connections(ctx, after, limit)
}

// connectionName is the name of a connection. Its number has leading zeros, so that names are in the order of numbers.
func connectionName(page *state.Connections, in *state.Connection) string {
	return fmt.Sprintf("%s-%012d", nameFor(page.ServerID), in.Serial)
}

// nodeLabels are the labels of the connections of an owner.
func nodeLabels(owner string) map[string]string {
	if owner == "" || len(validation.IsValidLabelValue(owner)) > 0 {
		return nil
	}
	return map[string]string{LabelNode: owner}
}

// connection makes the object of a connection.
func connection(page *state.Connections, in *state.Connection, labels map[string]string) *v1alpha1.TunnelConnection {
	o := &v1alpha1.TunnelConnection{}
	o.Name = connectionName(page, in)
	o.UID = uidFor("connection", page.ServerID, page.Started.String(), fmt.Sprint(in.Serial))
	o.CreationTimestamp = seconds(in.Since)
	o.Labels = labels
	o.Status = v1alpha1.TunnelConnectionStatus{
		ServerID: page.ServerID, AgentID: in.AgentID, NodeName: in.Owner, Destination: in.Destination, Since: seconds(in.Since),
		BytesToAgent: in.BytesToAgent, BytesFromAgent: in.BytesFromAgent, ObservedTime: seconds(page.Time),
	}
	return o
}
