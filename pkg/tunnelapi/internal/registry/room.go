// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// roomItems is how many connections the answers that are being written and the scans that run have together. It is
	// more than the largest list has, so that small lists go on next to one.
	roomItems = MaxConnections + MaxConnections/4
	// roomBlock is for how many objects at a time a scan asks for room.
	roomBlock = 100
	// roomWait is how long a list waits for room, and roomRetry after how many seconds its client tries again.
	roomWait, roomRetry = 2 * time.Second, 2
)

// room bounds the memory of lists of connections. A connection takes about 0.6 KiB while a scan finds it, and up to 2 KiB
// while a table is written: with the snapshots that are kept, all of it is below the bundle's memory limit. A snapshot that
// is kept needs no room, because Connections bounds those itself.
type room struct{ items *semaphore.Weighted }

func newRoom(items int64) room { return room{semaphore.NewWeighted(items)} }

// take waits for room for n connections, in the order of calls, or says that there is none. The caller gives it back.
func (r room) take(ctx context.Context, n int64) error {
	if n == 0 || r.items.TryAcquire(n) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if r.items.Acquire(wait, n) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf("lists with too many connections are being answered: list fewer with a field selector or in pages, or try again in %d s", roomRetry), roomRetry)
}

func (r room) give(n int64) { r.items.Release(n) }

// scanRoom is the room of one scan, which several goroutines fill.
type scanRoom struct {
	room  room
	mu    sync.Mutex
	held  int64
	found int64
	full  error
}

// add makes room for another object. After an error it has none for any other.
func (s *scanRoom) add(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full == nil && s.found == s.held {
		if s.full = s.room.take(ctx, roomBlock); s.full == nil {
			s.held += roomBlock
		}
	}
	if s.full != nil {
		return s.full
	}
	s.found++
	return nil
}

// end gives the room back.
func (s *scanRoom) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.give(s.held)
}

// answer is a request whose answer is not written yet. Its handler alone uses it.
type answer struct{ written []func() }

type answerKey struct{}

// HoldRoom returns a handler in whose requests a list of connections keeps its room until h returns. h is to be what writes
// the answer, and not what ends requests after a time: a handler may go on after that.
func HoldRoom(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{}
		defer func() {
			for _, f := range a.written {
				f()
			}
		}()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, a)))
	})
}

// whenWritten calls f when the answer to the request of ctx is written, and at once if ctx is of no request.
func whenWritten(ctx context.Context, f func()) {
	if a, ok := ctx.Value(answerKey{}).(*answer); ok {
		a.written = append(a.written, f)
		return
	}
	f()
}
