// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// Serve serves a handler until ctx ends. It returns once the listener is open,
// so that an address in use is an error at start.
func Serve(ctx context.Context, name, host string, port int, h http.Handler) error {
	return serve(ctx, name, host, port, h, httplimits.Short)
}

func serve(ctx context.Context, name, host string, port int, h http.Handler, limits httplimits.Limits) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", Address(host, port))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	srv := limits.Server(h)
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() {
		if err := srv.Serve(limits.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Listener failed", "name", name)
		}
	}()
	return nil
}

// Health returns the handler of a health listener.
func Health(ready http.HandlerFunc, metrics http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", OK)
	mux.HandleFunc("/readyz", ready)
	mux.HandleFunc("/ready", ready) // the older name
	mux.Handle("/metrics", metrics)
	return mux
}

// Admin returns the handler of an admin listener.
func Admin(metrics http.Handler, profiling, contention bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	if !profiling {
		return mux
	}
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently))
	mux.HandleFunc("/debug/pprof/", slow(pprof.Index))
	mux.HandleFunc("/debug/pprof/profile", slow(pprof.Profile))
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", slow(pprof.Trace))
	if contention {
		runtime.SetBlockProfileRate(1)
	}
	return mux
}

// slow lifts the read timeout from a handler that takes as long as the client asks for:
// net/http cancels a request when it expires, even one that was read. The handlers of
// pprof extend the write timeout themselves.
func slow(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		h(w, r)
	}
}

// OK answers "ok".
func OK(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
