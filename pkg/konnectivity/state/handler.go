// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Source is a server that shows its state.
type Source interface {
	State() State
	Connections(after int64, limit int) Connections
}

// Handler answers the requests of clients.
func Handler(s Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) { answer(w, s.State()) })
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

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
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
