// SPDX-License-Identifier: Apache-2.0

// Package serving holds what the commands that serve a proxy have in common: running a
// command that uses the proxy, a metrics listener, and a context in a kubeconfig for as long
// as the proxy runs.
//
// Start with [RunCommand], which "fairlead proxy -- COMMAND" and "fairlead socks5 -- COMMAND"
// call.
package serving

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
	"github.com/fairlead-dev/fairlead/pkg/gateway/kubeconfig"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// Metrics serves a registry at /metrics, /healthz, and /readyz until ctx ends, on a listener
// of their own. It does nothing if address is empty.
func Metrics(ctx context.Context, address string, registry *prometheus.Registry, errOut io.Writer) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address %s: %w: choose another address", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	srv := httplimits.Short.Server(mux)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(httplimits.Short.Listener(l)) }()
	_, _ = fmt.Fprintf(errOut, "Serving metrics on http://%s/metrics\n", l.Addr())
	return func() { _ = srv.Close(); <-done }, nil
}

// AddContext writes a context into a kubeconfig file; remove takes it out again and reports a
// failure on errOut. It does nothing if file is empty.
func AddContext(file string, e kubeconfig.Entry, errOut io.Writer) (remove func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	added, err := kubeconfig.Add(file, e)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(errOut, "Context %s is in %s until this command ends\n", e.Name, file)
	return func() {
		if err := added.Remove(); err != nil {
			_, _ = fmt.Fprintf(errOut, "Warning: removing context %s: %v\n", e.Name, err)
		}
	}, nil
}

// TemporaryKubeconfig writes an entry as the kubeconfig of a command, where only this user can
// read it.
func TemporaryKubeconfig(e kubeconfig.Entry) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "fairlead-")
	if err != nil {
		return "", nil, fmt.Errorf("making a directory for the command's kubeconfig: %w: set TMPDIR to a directory that you may write to", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	data, err := e.Encode()
	if err == nil {
		path = filepath.Join(dir, "kubeconfig")
		err = fsutil.WriteFile(path, data, 0o600)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// LocalAddress returns host:port at which clients of this machine reach a listener, which may
// listen on all addresses.
func LocalAddress(addr net.Addr) string {
	a, ok := addr.(*net.TCPAddr)
	if !ok || !a.IP.IsUnspecified() {
		return addr.String()
	}
	host := "127.0.0.1"
	if a.IP.To4() == nil {
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(a.Port))
}
