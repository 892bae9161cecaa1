package shell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"k8s.io/klog/v2"
)

// readHeaderTimeout bounds requests to health and admin listeners.
const readHeaderTimeout = 60 * time.Second

// Serve serves a handler until ctx ends. It returns once the listener is open,
// so that an address in use is an error at start.
func Serve(ctx context.Context, name, host string, port int, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: readHeaderTimeout, MaxHeaderBytes: 1 << 20}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Listener failed", "name", name)
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
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if contention {
		runtime.SetBlockProfileRate(1)
	}
	return mux
}

// OK answers "ok".
func OK(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
