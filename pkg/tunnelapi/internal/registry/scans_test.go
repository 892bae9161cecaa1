// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// slow is a source whose lists take a second.
type slow struct {
	fixed
	running, most, ended, canceled atomic.Int32
}

func (s *slow) Connections(ctx context.Context, _ func(*v1alpha1.TunnelConnection) bool, _ int) ([]*v1alpha1.TunnelConnection, []collect.Missing, error) {
	n := s.running.Add(1)
	defer s.running.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-time.After(time.Second):
		s.ended.Add(1)
		return nil, nil, nil
	case <-ctx.Done():
		s.canceled.Add(1)
		return nil, nil, ctx.Err()
	}
}

func listOf(agent int) *metainternalversion.ListOptions {
	return &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector(v1alpha1.FieldAgentID, fmt.Sprint("a", agent))}
}

// TestScansAreBounded: of many lists at a time only a few ask the servers, and those that ask for the same do it once.
func TestScansAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slow{}
		c := newConnections(source, time.Now())
		var all sync.WaitGroup
		for i := range 40 {
			for range 5 {
				all.Go(func() {
					if _, err := c.List(t.Context(), listOf(i)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if most, ended := source.most.Load(), source.ended.Load(); most > collect.MaxScans || ended != 40 {
			t.Errorf("40 different lists, of 5 clients each, are %d scans, and %d at a time", ended, most)
		}
	})
}

// TestScansOfNobody: a scan goes on while a client waits for it, and ends when all have gone, also if it has no place yet.
func TestScansOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slow{}
		c := newConnections(source, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if _, err := c.List(ctx, listOf(i)); !apierrors.IsTimeout(err) {
					t.Errorf("a list whose client has gone: %v", err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		if _, err := c.List(t.Context(), listOf(10)); err != nil { // it has no place before the others have gone
			t.Error(err)
		}
		all.Wait()
		synctest.Wait()
		if canceled, ended := source.canceled.Load(), source.ended.Load(); canceled < collect.MaxScans || ended != 1 || source.running.Load() > 0 {
			t.Errorf("%d scans were canceled and %d ended, want at least %d and 1", canceled, ended, collect.MaxScans)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		all.Go(func() { _, _ = c.List(ctx, listOf(11)) })
		time.Sleep(100 * time.Millisecond)
		if _, err := c.List(t.Context(), listOf(11)); err != nil {
			t.Errorf("a list whose first client has gone: %v", err)
		}
		all.Wait()
		if ended := source.ended.Load(); ended != 2 {
			t.Errorf("%d scans ended, want 2", ended)
		}
	})
}
