// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"
)

// TestAddressesOfGoneNode: a Node that was deleted has no address, which is no failure of the API server, and is asked for again.
func TestAddressesOfGoneNode(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		if path.Base(r.URL.Path) == "gone" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer srv.Close()
	n := &Nodes{Client: NewClient(&Config{Host: srv.URL}), Keep: time.Hour}
	for range 2 {
		if got, err := n.Addresses(t.Context(), "gone"); err != nil || len(got) != 0 {
			t.Errorf("%v, %v, want no address and no error", got, err)
		}
	}
	if asked != 2 {
		t.Errorf("the API server was asked %d times, want twice", asked)
	}
	if _, err := n.Addresses(t.Context(), "other"); err == nil {
		t.Error("no error for an API server that fails")
	}
}
