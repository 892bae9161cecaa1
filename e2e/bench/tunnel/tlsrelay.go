// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/baseline"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

// startTLSRelay is the relay with TLS between its two processes, with one connection for
// each carried connection, opened in advance. It shows the cost of encryption with
// crypto/tls without multiplexing or limits.
func startTLSRelay(mode string) (*rig, error) {
	r, exe, err := newFloor(tlsRelayName, mode)
	if err != nil {
		return nil, err
	}
	if err := certs.Write(r.dir); err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort()))
	a, err := start("floor", r.dir+"/agent0.log", nil, exe, "tls-floor", mode, addr, r.dir)
	if err != nil {
		return nil, err
	}
	r.agents = append(r.agents, a)
	if r.server, err = start("relay", r.dir+"/server.log", nil, exe, "tls-relay", r.socket, addr, r.dir); err != nil {
		r.stop()
		return nil, err
	}
	return r, r.awaitSocket()
}

// runTLSFloor is the process "bench-tunnel tls-floor <mode> <address> <directory>".
func runTLSFloor(mode, address, dir string) error {
	cfg, err := bothEnds(dir)
	if err != nil {
		return err
	}
	serve := baseline.Connect
	if mode == "grpc" {
		serve = baseline.GRPC
	}
	return serveAll("tcp", address, func(c net.Conn) {
		s := baseline.NewSealed(c, cfg, tls.Server)
		if s.HandshakeContext(context.Background()) != nil { // before anybody gathers what it writes
			_ = c.Close()
			return
		}
		serve(s)
	})
}

// runTLSRelay is the process "bench-tunnel tls-relay <socket> <address> <directory>".
func runTLSRelay(socket, address, dir string) error {
	cfg, err := bothEnds(dir)
	if err != nil {
		return err
	}
	ready := make(chan *baseline.Sealed, 16)
	go func() {
		for {
			t, err := baseline.Dial(address)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // the other process is not there yet
				continue
			}
			s := baseline.NewSealed(t, cfg, tls.Client)
			if err := s.HandshakeContext(context.Background()); err != nil {
				fmt.Fprintf(os.Stderr, "TLS relay: handshake with %s: %v\n", address, err)
				_ = t.Close()
				time.Sleep(time.Second)
				continue
			}
			ready <- s
		}
	}()
	return serveAll("unix", socket, func(c net.Conn) {
		defer c.Close()
		s := <-ready
		defer func() { _ = s.Close() }()
		baseline.JoinSealed(s, c)
	})
}

func bothEnds(dir string) (*tls.Config, error) {
	crt, err := tls.LoadX509KeyPair(dir+"/crt", dir+"/key")
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(dir + "/ca")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{crt}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}, nil
}
