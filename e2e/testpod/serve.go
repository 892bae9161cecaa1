// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// options are the server's flags.
type options struct {
	http, tcp, tls                    string
	certFile, keyFile                 string
	frontProxyCAFile, frontProxyNames string
	tick                              time.Duration
	keep                              bool
}

// serve runs all servers until ctx ends, or one fails.
func serve(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.StringVar(&o.http, "http", ":8080", "address of the HTTP server")
	f.StringVar(&o.tcp, "tcp", ":7070", "address of the TCP echo")
	f.StringVar(&o.tls, "tls", "", "address of the webhook and the aggregated API; empty: none")
	f.StringVar(&o.certFile, "cert", "", "the latter's certificate")
	f.StringVar(&o.keyFile, "key", "", "its private key")
	f.StringVar(&o.frontProxyCAFile, "front-proxy-ca", "", "CA of those who may speak for others to the aggregated API")
	f.StringVar(&o.frontProxyNames, "front-proxy-names", "", "their common names, with commas between")
	f.BoolVar(&o.keep, "keep-connections", false, "let clients of the webhook and the aggregated API keep their connections, by HTTP/2, too")
	f.DurationVar(&o.tick, "tick", 0, "how often a line \"tick N\" goes into the log; 0: never")
	if err := f.Parse(args); err != nil {
		return err
	}
	failed := make(chan error, 3)
	start := func(f func(context.Context, options) error) { go func() { failed <- f(ctx, o) }() }
	start(serveHTTP)
	start(serveTCP)
	if o.tls != "" {
		start(serveTLS)
	}
	if o.tick > 0 {
		go tick(ctx, o.tick)
	}
	fmt.Println("testpod serves")
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// tick writes numbered lines into the log.
func tick(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		printing.Lock()
		fmt.Println("tick", i)
		printing.Unlock()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// serveHTTP answers what the tests ask through Pod and Service proxies.
func serveHTTP(ctx context.Context, o options) error {
	mux := http.NewServeMux()
	// What the hello application of the Kubernetes documentation answers.
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		_, _ = fmt.Fprintf(w, "Hello, world!\nVersion: 2.0.0\nHostname: %s\n", name)
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		_, _ = io.WriteString(w, name)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Query().Get("msg")) })
	mux.HandleFunc("/sum", answerSum)
	mux.HandleFunc("/print", answerPrint)
	mux.HandleFunc("/stream", answerStream)
	server := &http.Server{Addr: o.http, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	// Every request takes a new connection, and so a new dial through the tunnel.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	return server.ListenAndServe()
}

// answerSum says the SHA-256 of a body.
func answerSum(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, "%x", hash.Sum(nil))
}

var printing sync.Mutex

// answerPrint writes lines into the Pod's log: WORD 1 to WORD N, each filled to SIZE bytes.
func answerPrint(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	lines, err := strconv.Atoi(q.Get("lines"))
	size, err2 := strconv.Atoi(q.Get("size"))
	if err := errors.Join(err, err2); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	printing.Lock()
	defer printing.Unlock()
	for i := range lines {
		line := fmt.Sprintf("%s %d ", q.Get("word"), i+1)
		_, _ = fmt.Println(line + strings.Repeat("x", max(0, size-len(line)-1)))
	}
}

// answerStream sends a numbered line every so often until the caller goes.
func answerStream(w http.ResponseWriter, r *http.Request) {
	every, err := time.ParseDuration(r.URL.Query().Get("every"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := http.NewResponseController(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		if _, err := fmt.Fprintln(w, i); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// serveTCP sends back what it gets.
func serveTCP(ctx context.Context, o options) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.tcp)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// serveTLS serves the webhook to all clients and the aggregated API to front proxies only.
func serveTLS(ctx context.Context, o options) error {
	cert, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	if err != nil {
		return err
	}
	front, err := loadFrontProxy(o)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/validate", validate)
	mux.Handle("/apis/", front.only(apiHandler()))
	server := &http.Server{
		Addr: o.tls, Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: front.ca,
		},
	}
	if !o.keep { // every call is a dial through the tunnel
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		server.SetKeepAlivesEnabled(false)
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	return server.ListenAndServeTLS("", "")
}
