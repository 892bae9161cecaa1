// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// serveFew serves a proxy with as many places.
func serveFew(t *testing.T, o Options, places int) (address string) {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	limits := httplimits.Long
	limits.Conns = places
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, done := limits.Server(h), make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(limits.Listener(halfListener{l})) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

// TestWrongTokensHoldNoPlaces: clients with wrong tokens keep none with the right one out while they wait for their answers.
func TestWrongTokensHoldNoPlaces(t *testing.T) {
	api := startAPIServer(t)
	for name, failures := range map[string]*gateway.Failures{"of a file": gateway.NewFailures(time.Minute), "random": nil} {
		t.Run("a token "+name, func(t *testing.T) {
			const places = 4
			address := serveFew(t, Options{Config: api.config(), Filter: defaults(t), Token: "secret", Failures: failures}, places)
			for range places {
				c, _ := dial(t, address, "GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n")
				defer c.Close()
			}
			time.Sleep(100 * time.Millisecond) // in which the proxy has received the requests
			if got := send(t, address, get("/api", "localhost", "Authorization: Bearer secret")); got.status != http.StatusOK {
				t.Errorf("the right token: status %d: %s", got.status, got.body)
			}
		})
	}
}
