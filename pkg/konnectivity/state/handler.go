// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Source is a server that shows its state.
type Source interface {
	State() State
	Connections(after int64, limit int) Connections
}

// Handler answers the requests of clients.
func Handler(s Source) http.Handler {
	mux := http.NewServeMux()
	last := &lastState{source: s}
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(last.encoded()) // fails if the client has gone
	})
	mux.HandleFunc("GET "+ConnectionsPath, func(w http.ResponseWriter, r *http.Request) {
		after, limit, err := pageOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, s.Connections(after, limit))
	})
	return mux
}

const (
	contentType = "application/json"
	// manyLinks is from how many links on an answer is kept for further clients, for keepPerLink each, and maxKeep at most. A link
	// takes about 4 µs, so answers take less than a tenth of a core, however many clients ask.
	manyLinks   = 500
	keepPerLink = 50 * time.Microsecond
	maxKeep     = 500 * time.Millisecond
)

// lastState is the last answer for State. Only one is made at a time.
type lastState struct {
	source Source

	mu    sync.Mutex
	body  []byte
	until time.Time
}

func (l *lastState) encoded() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		return l.body
	}
	st := l.source.State()
	body, err := json.Marshal(st)
	if err != nil { // no time has a year of five digits
		return nil
	}
	l.body, l.until = nil, time.Time{}
	if n := len(st.Links); n >= manyLinks {
		l.body, l.until = body, time.Now().Add(min(time.Duration(n)*keepPerLink, maxKeep))
	}
	return body
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has gone
}

// pageOf reads the parameters of a request for connections.
func pageOf(r *http.Request) (after int64, limit int, err error) {
	limit = DefaultLimit
	q := r.URL.Query()
	if v := q.Get("after"); v != "" {
		if after, err = strconv.ParseInt(v, 10, 64); err != nil || after < 0 {
			return 0, 0, fmt.Errorf("after=%q is not the serial number of a connection", v)
		}
	}
	if v := q.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > MaxLimit {
			return 0, 0, fmt.Errorf("limit=%q is not between 1 and %d", v, MaxLimit)
		}
	}
	return after, limit, nil
}
