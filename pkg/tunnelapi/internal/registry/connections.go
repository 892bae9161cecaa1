// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/warning"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/memstore"
)

// Source asks for connections, and says what objects may be missing. *collect.Collector is one.
type Source interface {
	// Ready is nil once it is known which agents there are.
	Ready() error
	// Missing returns the servers of which nothing is known.
	Missing() []collect.Missing
	Connections(ctx context.Context, keep func(*v1alpha1.TunnelConnection) bool, limit int) ([]*v1alpha1.TunnelConnection, []collect.Missing, error)
	// Connection asks for one connection. It is nil if there is none of the name.
	Connection(ctx context.Context, name string) (*v1alpha1.TunnelConnection, error)
}

// Limits of lists of connections.
const (
	// MaxConnections is how many connections a list has at most, over all its pages.
	MaxConnections = 100_000
	// snapshotAge is how old a snapshot may be for a new list.
	snapshotAge = time.Second
	// snapshotKept is how long a snapshot is kept for later pages.
	snapshotKept = 5 * time.Minute
	// snapshotsKept bounds the snapshots with and those without later pages, and snapshotItems what all of them have.
	snapshotsKept, snapshotItems = 16, 2 * MaxConnections
)

const connectionsPrefix = "/tunnelconnections/"

// snapshot is a list of connections, as later pages need it.
type snapshot struct {
	rv       uint64
	selector string
	at       time.Time
	items    []*v1alpha1.TunnelConnection // ordered by name
	missing  []collect.Missing
	// paged is set once a client has a token for a later page. Others are for new lists only, for snapshotAge. It is
	// guarded by Connections.mu.
	paged bool
}

// Connections serves connections by get and list. A list takes a snapshot, whose pages are consistent.
type Connections struct {
	source Source
	now    func() time.Time
	scans  *scans
	room   room

	mu    sync.Mutex
	rv    uint64
	first uint64
	kept  []*snapshot // oldest first
	// dropping is set while a timer runs that drops what is over.
	dropping bool
}

var (
	_ rest.Lister               = (*Connections)(nil)
	_ rest.Getter               = (*Connections)(nil)
	_ rest.Scoper               = (*Connections)(nil)
	_ rest.ShortNamesProvider   = (*Connections)(nil)
	_ rest.SingularNameProvider = (*Connections)(nil)
)

func newConnections(source Source, started time.Time) *Connections {
	first := memstore.Epoch(started)
	return &Connections{source: source, now: time.Now, scans: newScans(), room: newRoom(roomItems), rv: first, first: first}
}

// New implements rest.Storage.
func (c *Connections) New() runtime.Object { return &v1alpha1.TunnelConnection{} }

// Destroy implements rest.Storage.
func (c *Connections) Destroy() {}

// NewList implements rest.Lister.
func (c *Connections) NewList() runtime.Object { return &v1alpha1.TunnelConnectionList{} }

// NamespaceScoped implements rest.Scoper.
func (c *Connections) NamespaceScoped() bool { return false }

// ShortNames implements rest.ShortNamesProvider.
func (c *Connections) ShortNames() []string { return []string{"tc"} }

// GetSingularName implements rest.SingularNameProvider.
func (c *Connections) GetSingularName() string { return "tunnelconnection" }

// ConvertToTable implements rest.TableConvertor.
func (c *Connections) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return connectionTable.ConvertToTable(ctx, object, options)
}

// Get implements rest.Getter. It asks the server that the name is of.
func (c *Connections) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	o, err := c.source.Connection(ctx, name)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	rv := c.next()
	if err := notFuture(opts.ResourceVersion, rv); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("tunnelconnections"), name)
	}
	o.ResourceVersion = strconv.FormatUint(rv, 10)
	return o, nil
}

// next returns the resource version of what was just asked for.
func (c *Connections) next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++
	return c.rv
}

func notFuture(version string, rv uint64) error {
	want, err := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	switch {
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	case want > rv:
		return storage.NewTooLargeResourceVersionError(want, rv, 1)
	}
	return nil
}

// List implements rest.Lister.
func (c *Connections) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	label, field := labels.Everything(), fields.Everything()
	if options.LabelSelector != nil {
		label = options.LabelSelector
	}
	if options.FieldSelector != nil {
		field = options.FieldSelector
	}
	opts := storage.ListOptions{ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{Label: label, Field: field, Limit: options.Limit, Continue: options.Continue}}
	wanted, from, err := storage.ValidateListOptions(connectionsPrefix, storage.APIObjectVersioner{}, opts)
	if err != nil {
		return nil, err
	}
	var s *snapshot
	if wanted > 0 {
		s, err = c.old(uint64(wanted), selectorOf(label, field), options.Continue != "")
	} else if s, err = c.fresh(ctx, label, field); err == nil && options.Continue == "" {
		err = notFuture(options.ResourceVersion, s.rv)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range s.missing {
		warning.AddWarning(ctx, "", m.Of("connections"))
	}
	rest := s.from(from)
	shown := int64(len(rest))
	if options.Limit > 0 {
		shown = min(shown, options.Limit)
	}
	if err := c.room.take(ctx, shown); err != nil {
		return nil, err
	}
	whenWritten(ctx, func() { c.room.give(shown) })
	list, err := page(s.rv, rest, rest[:shown], opts)
	if err != nil {
		return nil, err
	}
	if list.Continue != "" {
		c.keep(s)
	}
	return list, nil
}

// from is what a snapshot has from a name on.
func (s *snapshot) from(key string) []*v1alpha1.TunnelConnection {
	name := strings.TrimPrefix(key, connectionsPrefix)
	return s.items[sort.Search(len(s.items), func(i int) bool { return s.items[i].Name >= name }):]
}

// page is a list of what is shown of the rest of a snapshot.
func page(rv uint64, rest, shown []*v1alpha1.TunnelConnection, opts storage.ListOptions) (*v1alpha1.TunnelConnectionList, error) {
	list := &v1alpha1.TunnelConnectionList{Items: make([]v1alpha1.TunnelConnection, 0, len(shown))}
	last := ""
	for _, o := range shown {
		list.Items = append(list.Items, *o)
		last = connectionsPrefix + o.Name
	}
	token, remaining, err := storage.PrepareContinueToken(last, connectionsPrefix, int64(rv), int64(len(rest)), len(shown) < len(rest), opts)
	if err != nil {
		return nil, err
	}
	list.ResourceVersion, list.Continue, list.RemainingItemCount = strconv.FormatUint(rv, 10), token, remaining
	return list, nil
}

func selectorOf(label labels.Selector, field fields.Selector) string {
	return label.String() + "\x00" + field.String()
}

// fresh returns a snapshot that is new enough.
func (c *Connections) fresh(ctx context.Context, label labels.Selector, field fields.Selector) (*snapshot, error) {
	key, now := selectorOf(label, field), c.now()
	c.mu.Lock()
	for _, s := range slices.Backward(c.kept) {
		if s.selector == key && now.Sub(s.at) <= snapshotAge {
			c.mu.Unlock()
			return s, nil
		}
	}
	c.mu.Unlock()
	return c.scans.do(ctx, key, func(ctx context.Context) (*snapshot, error) { return c.take(ctx, key, label, field) })
}

// take asks the servers for a snapshot.
func (c *Connections) take(ctx context.Context, key string, label labels.Selector, field fields.Selector) (*snapshot, error) {
	now, found := c.now(), &scanRoom{room: c.room}
	defer found.end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	keep := func(o *v1alpha1.TunnelConnection) bool {
		if !label.Matches(labels.Set(o.Labels)) || !field.Matches(connectionFields(o)) {
			return false
		}
		err := found.add(ctx)
		if err != nil {
			stop(err)
		}
		return err == nil
	}
	items, missing, err := c.source.Connections(ctx, keep, MaxConnections)
	if full := context.Cause(ctx); apierrors.IsTooManyRequests(full) {
		return nil, full
	}
	if errors.Is(err, collect.ErrTooMany) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%v: select fewer of them with a field selector, for example status.agentID=ID", err))
	}
	if errors.Is(err, collect.ErrNoAnswer) {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++
	for _, o := range items {
		o.ResourceVersion = strconv.FormatUint(c.rv, 10)
	}
	s := &snapshot{rv: c.rv, selector: key, at: now, items: items, missing: missing}
	c.kept = append(c.kept, s)
	c.trimLocked(now)
	return s, nil
}

func connectionFields(o *v1alpha1.TunnelConnection) fields.Set {
	return fields.Set{v1alpha1.FieldName: o.Name, v1alpha1.FieldAgentID: o.Status.AgentID, v1alpha1.FieldNodeName: o.Status.NodeName,
		v1alpha1.FieldServerID: o.Status.ServerID, v1alpha1.FieldDestination: o.Status.Destination}
}

// keep keeps a snapshot for later pages.
func (c *Connections) keep(s *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.paged = true
	if !slices.Contains(c.kept, s) { // other requests have dropped it meanwhile
		c.kept = append(c.kept, s)
	}
	c.trimLocked(c.now())
}

// over reports whether no client may ask for the snapshot any more. It is called with Connections.mu held.
func (s *snapshot) over(now time.Time) bool {
	age := now.Sub(s.at)
	return age > snapshotKept || !s.paged && age > snapshotAge
}

// dropOldLocked drops the snapshots that are over, and does so again when the next one is.
func (c *Connections) dropOldLocked(now time.Time) {
	c.kept = slices.DeleteFunc(c.kept, func(s *snapshot) bool { return s.over(now) })
	if len(c.kept) == 0 || c.dropping {
		return
	}
	c.dropping = true
	time.AfterFunc(snapshotAge+time.Millisecond, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropping = false
		c.dropOldLocked(c.now())
	})
}

// trimLocked drops the snapshots that are over, and the oldest ones if there are too many, those without later pages first,
// but not the last one.
func (c *Connections) trimLocked(now time.Time) {
	c.dropOldLocked(now)
	if len(c.kept) == 0 {
		return
	}
	last := c.kept[len(c.kept)-1]
	total := 0
	number := map[bool]int{}
	for _, s := range c.kept {
		total += len(s.items)
		number[s.paged]++
	}
	for _, paged := range []bool{false, true} {
		c.kept = slices.DeleteFunc(c.kept, func(s *snapshot) bool {
			if s == last || s.paged != paged || number[paged] <= snapshotsKept && total <= snapshotItems {
				return false
			}
			number[paged]--
			total -= len(s.items)
			return true
		})
	}
}

// old returns the snapshot of an earlier page, or at an exact resource version. The page of a process that started later has
// expired, too: it is never reached, and after a timeout clients would not list again.
func (c *Connections) old(rv uint64, selector string, paging bool) (*snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rv > c.rv && !paging {
		return nil, storage.NewTooLargeResourceVersionError(rv, c.rv, 1)
	}
	c.dropOldLocked(c.now())
	for _, s := range c.kept {
		if s.rv != rv {
			continue
		}
		if s.selector != selector {
			return nil, apierrors.NewBadRequest("the continue parameter is of a list with other selectors: use the same ones for all pages")
		}
		return s, nil
	}
	return nil, apierrors.NewResourceExpired("The provided continue parameter or resource version is too old: the list is no longer kept. You can start a new list without it.")
}
