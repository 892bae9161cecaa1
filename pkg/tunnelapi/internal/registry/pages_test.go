// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// fixed has so many connections, and counts how often it was asked.
type fixed struct{ connections, asked int }

func (*fixed) Ready() error               { return nil }
func (*fixed) Missing() []collect.Missing { return nil }

func (f *fixed) Connections(_ context.Context, keep func(*v1alpha1.TunnelConnection) bool, _ int) (out []*v1alpha1.TunnelConnection, missing []collect.Missing, err error) {
	f.asked++
	for i := range f.connections {
		o := &v1alpha1.TunnelConnection{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("one-%012d", i)}}
		if keep(o) {
			out = append(out, o)
		}
	}
	return out, nil, nil
}

func (f *fixed) Connection(_ context.Context, name string) (*v1alpha1.TunnelConnection, error) {
	for i := range f.connections {
		if name == fmt.Sprintf("one-%012d", i) {
			return &v1alpha1.TunnelConnection{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
	}
	return nil, nil
}

// pages is a source behind Connections with a clock that the test moves.
type pages struct {
	t   *testing.T
	c   *Connections
	f   *fixed
	now atomic.Pointer[time.Time] // the collector of old snapshots reads it, too
}

// pass lets time pass.
func (p *pages) pass(d time.Duration) {
	now := p.now.Load().Add(d)
	p.now.Store(&now)
}

// kept returns the snapshots that are kept.
func (p *pages) kept() []*snapshot {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return slices.Clone(p.c.kept)
}

func newPages(t *testing.T) *pages {
	p := &pages{t: t, f: &fixed{connections: 30}}
	now := time.Now()
	p.now.Store(&now)
	p.c = newConnections(p.f, now)
	p.c.now = func() time.Time { return *p.now.Load() }
	return p
}

// list lists connections, of all names or of one.
func (p *pages) list(name, token string, limit int64) (*v1alpha1.TunnelConnectionList, error) {
	p.t.Helper()
	o := &metainternalversion.ListOptions{Limit: limit, Continue: token}
	if name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(v1alpha1.FieldName, name)
	}
	list, err := p.c.List(p.t.Context(), o)
	if err != nil {
		return nil, err
	}
	return list.(*v1alpha1.TunnelConnectionList), nil
}

// TestPagesOfOthers: gets, and lists without later pages, do not take away the pages of others, however many there are.
func TestPagesOfOthers(t *testing.T) {
	p := newPages(t)
	first, err := p.list("", "", 10)
	if err != nil || first.Continue == "" {
		t.Fatal(first, err)
	}
	for i := range 10 * snapshotsKept {
		p.pass(10 * time.Millisecond)
		name := fmt.Sprintf("one-%012d", i%30)
		if _, err := p.c.Get(t.Context(), name, &metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.list(fmt.Sprintf("other-%d", i), "", 0); err != nil {
			t.Fatal(err)
		}
	}
	second, err := p.list("", first.Continue, 10)
	if err != nil || len(second.Items) != 10 || second.ResourceVersion != first.ResourceVersion {
		t.Fatalf("the second page: %v, %v", second, err)
	}
	p.pass(snapshotKept)
	if _, err := p.list("", "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.list("", second.Continue, 10); !apierrors.IsResourceExpired(err) {
		t.Errorf("the third page after a long time: %v", err)
	}
}

// TestPagesEnd: a token is worth nothing after the time for which snapshots are kept, also without other lists, and then no
// connection is kept.
func TestPagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(&fixed{connections: 30}, time.Now())
		list := func(token string, limit int64) (*v1alpha1.TunnelConnectionList, error) {
			o, err := c.List(t.Context(), &metainternalversion.ListOptions{Limit: limit, Continue: token})
			if err != nil {
				return nil, err
			}
			return o.(*v1alpha1.TunnelConnectionList), nil
		}
		first, err := list("", 10)
		if err != nil || first.Continue == "" {
			t.Fatal(first, err)
		}
		time.Sleep(snapshotKept - time.Second)
		if _, err := list(first.Continue, 10); err != nil {
			t.Errorf("the second page in time: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := list(first.Continue, 10); !apierrors.IsResourceExpired(err) {
			t.Errorf("the second page too late: %v", err)
		}
		if _, err := list("", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * snapshotAge)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.kept) > 0 {
			t.Errorf("%d snapshots are kept that no client can ask for", len(c.kept))
		}
	})
}

// TestSnapshotsAreBounded: whatever clients ask for, few snapshots are kept, and lists that come together share one.
func TestSnapshotsAreBounded(t *testing.T) {
	p := newPages(t)
	for range 5 {
		if _, err := p.list("", "", 10); err != nil {
			t.Fatal(err)
		}
	}
	if p.f.asked != 1 {
		t.Errorf("lists at the same time ask the servers %d times", p.f.asked)
	}
	for i := range 5 * snapshotsKept {
		if _, err := p.list(fmt.Sprintf("other-%d", i), "", 0); err != nil {
			t.Fatal(err)
		}
		p.pass(2 * snapshotAge)
		if _, err := p.list("", "", 10); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.kept()); n > 2*snapshotsKept {
		t.Errorf("%d snapshots are kept", n)
	}
	p.f.connections = MaxConnections
	for range 4 {
		p.pass(2 * snapshotAge)
		if _, err := p.list("", "", 10); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for _, s := range p.kept() {
		total += len(s.items)
	}
	if total > snapshotItems {
		t.Errorf("%d connections are kept", total)
	}
}
