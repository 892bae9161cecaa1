// SPDX-License-Identifier: Apache-2.0

// Command podtest is what pods of checks and tests run, in place of agnhost:
//
//	podtest netexec [--http-port 8080]    serves HTTP: /echo?msg=, /hostname, /clientip, /healthz
//	podtest pause                         sleeps until it is asked to end
//
// Beside it, its image holds busybox for exec, cp and probes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podtest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := "netexec"
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "pause":
		<-ctx.Done()
		return nil
	case "netexec":
		flags := flag.NewFlagSet("podtest netexec", flag.ContinueOnError)
		port := flags.Int("http-port", 8080, "port to serve HTTP on")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return serve(ctx, fmt.Sprintf(":%d", *port))
	}
	return fmt.Errorf("unknown command %q: netexec or pause", command)
}

func serve(ctx context.Context, address string) error {
	server := &http.Server{Addr: address, Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	log.Printf("Started HTTP server on %s", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, text func(*http.Request) (string, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			log.Printf("%s %s", r.Method, r.URL.Path)
			body, err := text(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprint(w, body)
		})
	}
	answer("/echo", func(r *http.Request) (string, error) { return r.FormValue("msg"), nil })
	answer("/hostname", func(*http.Request) (string, error) { return os.Hostname() })
	answer("/hostName", func(*http.Request) (string, error) { return os.Hostname() }) // agnhost's older spelling
	answer("/clientip", func(r *http.Request) (string, error) { return r.RemoteAddr, nil })
	answer("/healthz", func(*http.Request) (string, error) { return "ok", nil })
	answer("/{$}", func(*http.Request) (string, error) { return "NOW: " + time.Now().Format(time.RFC3339Nano), nil })
	return mux
}
