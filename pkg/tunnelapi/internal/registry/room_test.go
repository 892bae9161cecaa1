// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// inRequests has a room for 10 times as many connections as its source has, and serves lists of all connections, whose
// answers take a minute to write.
type inRequests struct {
	t             *testing.T
	c             *Connections
	h             http.Handler
	running, most atomic.Int32
}

func newInRequests(t *testing.T) *inRequests {
	f := &fixed{connections: roomBlock}
	r := &inRequests{t: t, c: newConnections(f, time.Now())}
	r.c.room = newRoom(10 * roomBlock)
	r.h = HoldRoom(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		o := &metainternalversion.ListOptions{}
		switch req.URL.Path {
		case "/one":
			o.FieldSelector = fields.OneTermEqualSelector(v1alpha1.FieldName, fmt.Sprintf("one-%012d", 1))
		case "/none":
			o.FieldSelector = fields.OneTermEqualSelector(v1alpha1.FieldName, "none")
		case "/page":
			o.Limit = 1
		}
		if _, err := r.c.List(req.Context(), o); err != nil {
			r.refuse(w, err)
			return
		}
		n := r.running.Add(1)
		defer r.running.Add(-1)
		for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
		}
		time.Sleep(time.Minute)
		if req.URL.Path == "/panic" {
			panic("the client has gone")
		}
	}))
	return r
}

func (r *inRequests) refuse(w http.ResponseWriter, err error) {
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds < 1 {
		r.t.Errorf("a list without room: %v", err)
	}
	w.WriteHeader(http.StatusTooManyRequests)
}

func (r *inRequests) get(path string) int {
	defer func() { _ = recover() }() // as a server does
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

// empty fails the test if room is taken.
func (r *inRequests) empty() {
	r.t.Helper()
	if !r.c.room.items.TryAcquire(10 * roomBlock) {
		r.t.Error("room is taken that no list needs")
		return
	}
	r.c.room.give(10 * roomBlock)
}

// TestRoom: of many lists at a time, few hold their connections while answers are written. Others wait for a short time,
// and then their clients are to try again. After that all are answered.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInRequests(t)
		for _, path := range []string{"/panic", "/all"} {
			var ok, refused atomic.Int32
			var all sync.WaitGroup
			begin := time.Now()
			for range 100 {
				all.Go(func() {
					if r.get(path) == http.StatusTooManyRequests {
						refused.Add(1)
						if waited := time.Since(begin); waited < roomWait || waited > 2*roomWait {
							t.Errorf("a list without room waits for %v", waited)
						}
						return
					}
					ok.Add(1)
				})
			}
			all.Wait()
			if ok.Load() != 10 || refused.Load() != 90 || r.most.Load() != 10 {
				t.Errorf("%s: %d answers, %d at a time, and %d refusals, want 10, 10 and 90", path, ok.Load(), r.most.Load(), refused.Load())
			}
			r.empty()
		}
	})
}

// TestRoomOfScans: lists with different selectors find no more connections at a time than there is room for, and one that
// gets no more room gives back what it has.
func TestRoomOfScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInRequests(t)
		if err := r.c.room.take(t.Context(), 10*roomBlock); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/all", "/one"} {
			if code := r.get(path); code != http.StatusTooManyRequests {
				t.Errorf("%s without room: status %d", path, code)
			}
		}
		if code := r.get("/none"); code != http.StatusOK {
			t.Errorf("a list without connections: status %d", code)
		}
		r.c.room.give(9 * roomBlock)
		if code := r.get("/page"); code != http.StatusOK {
			t.Errorf("a list for which there is room: status %d", code)
		}
		r.c.source.(*fixed).connections = 10 * roomBlock
		if code := r.get("/page"); code != http.StatusTooManyRequests {
			t.Errorf("a small page of more connections than there is room for: status %d", code)
		}
		r.c.room.give(roomBlock)
		r.empty()
		if code := r.get("/page"); code != http.StatusOK {
			t.Errorf("the same list with room: status %d", code)
		}
	})
}

// TestRoomIsLeft: a list that waits for room gets it when others end.
func TestRoomIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInRequests(t)
		if err := r.c.room.take(t.Context(), 10*roomBlock); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(roomWait/2, func() { r.c.room.give(10 * roomBlock) })
		if code := r.get("/all"); code != http.StatusOK {
			t.Errorf("a list that waits for room: status %d", code)
		}
		r.empty()
	})
}
