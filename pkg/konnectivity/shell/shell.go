// Package shell is what the two commands share: klog's flags, signals, the health
// and admin listeners, and telling systemd that the process is ready.
package shell

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// AddKlogFlags adds klog's flags with dashes in their names, and --v with
// default 4 as the reference commands have it.
func AddKlogFlags(fs *pflag.FlagSet) {
	local := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(local)
	_ = local.Set("v", "4")
	local.VisitAll(func(f *flag.Flag) {
		f.Name = strings.ReplaceAll(f.Name, "_", "-")
		fs.AddGoFlag(f)
	})
}

// Normalize lets flags be written with underscores.
func Normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// Logf writes to klog; level 0 is for problems.
func Logf(level int, format string, args ...any) {
	if level == 0 {
		klog.WarningDepth(1, fmt.Sprintf(format, args...))
		return
	}
	if v := klog.V(klog.Level(level)); v.Enabled() {
		klog.InfoDepth(1, fmt.Sprintf(format, args...))
	}
}

// Signals returns a channel that is closed at the first SIGTERM or SIGINT and one
// that is closed at the second.
func Signals() (first, second <-chan struct{}) {
	a, b := make(chan struct{}), make(chan struct{})
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-c
		close(a)
		<-c
		close(b)
	}()
	return a, b
}

// Notify tells systemd about a state, for example "READY=1", if it waits for it.
func Notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		klog.V(1).InfoS("Cannot tell systemd", "err", err)
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte(state))
}

// readHeaderTimeout bounds requests to health and admin listeners.
const readHeaderTimeout = 60 * time.Second

// Serve serves a handler until ctx ends. It returns once the listener is open,
// so that an address in use is an error at start.
func Serve(ctx context.Context, name, address string, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
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

// AddProfiling adds pprof to an admin handler.
func AddProfiling(mux *http.ServeMux, contention bool) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if contention {
		runtime.SetBlockProfileRate(1)
	}
}

// TuneMemory makes the garbage collector run twice as often as by default,
// unless GOGC says otherwise: bulk data lives in pools, so there is little
// garbage, and half of the heap of an idle process would be reserve.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// Settle gives memory back once the number of connections has changed by much
// and then stands still: setting connections up needs deep stacks and makes
// garbage, both of which would stay until the next regular collection, minutes
// later where there is little traffic. It returns when ctx ends.
func Settle(ctx context.Context, count func() int64) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last, tidied int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n := count()
		changed := n - tidied
		if changed < 0 {
			changed = -changed
		}
		if n == last && changed > 256+tidied/4 {
			debug.FreeOSMemory() // halves stacks that are mostly unused
			debug.FreeOSMemory() // and once more
			tidied = n
		}
		last = n
	}
}

// OK answers "ok".
func OK(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
