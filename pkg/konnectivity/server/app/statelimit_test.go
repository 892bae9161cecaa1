// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestConnectsLeavePlacesForState: connections through agents have places of their own. When these are taken, others get 503,
// requests for state are still answered, and a connection that has ended makes room.
func TestConnectsLeavePlacesForState(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	h := limitConnects(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			begun <- struct{}{}
			<-end
		}
	}), 2)
	ask := func(method string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "http://10.0.0.1:80", nil))
		return w.Code
	}
	over := make(chan int, 3)
	for range 2 {
		go func() { over <- ask(http.MethodConnect) }()
		<-begun
	}
	if third, poll := ask(http.MethodConnect), ask(http.MethodGet); third != http.StatusServiceUnavailable || poll != http.StatusOK {
		t.Errorf("a third connection: %d, a request for state: %d", third, poll)
	}
	end <- struct{}{}
	<-over
	go func() { over <- ask(http.MethodConnect) }()
	<-begun
	close(end)
	for range 2 {
		if code := <-over; code != http.StatusOK {
			t.Errorf("a connection: %d", code)
		}
	}
	for conns, want := range map[int]int{1: 0, 20: 10, 128: 96, 10000: maxStateConnects} {
		if got := connectPlaces(conns); got != want {
			t.Errorf("of %d connections, %d go through agents, want %d", conns, got, want)
		}
	}
}
