// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// silence is how long clients may be silent before they have sent a request, and late what a busy
// machine adds.
const (
	silence = 10 * time.Second
	late    = 20 * time.Second
)

// descriptors counts what a process has open.
func (p *process) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(p.Process.Pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestSilentClients: clients of the real program that say nothing, or stop in the middle of TLS or
// of a request's head, are closed within 10 seconds, on a port, a Unix socket and with TLS. A watch
// and new requests next to them are served, and the proxy holds nothing of them afterwards.
func TestSilentClients(t *testing.T) {
	const clients = 60 // of each kind
	kubeconfig := slowAPIServer(t)
	socket, written := daemontest.SocketPath(t), filepath.Join(t.TempDir(), "config")
	plain := []string{"", "G", "GET /api HTTP/1.1\r\n", "GET /api HTTP/1.1\r\nHost: localhost\r\nX: y"}
	for _, c := range []struct {
		name string
		args []string
		say  []string
		tls  *tls.Config
	}{
		{"port", []string{"--port", "0"}, plain, nil},
		{"Unix socket", []string{"--unix-socket", socket}, plain, nil},
		{"TLS, in the middle of the handshake", []string{"--port", "0", "--tls", "--write-kubeconfig", written}, []string{"", "\x16\x03\x01\x02\x00"}, nil},
		{"TLS", []string{"--port", "0", "--tls", "--write-kubeconfig", written}, plain, &tls.Config{InsecureSkipVerify: true}},                                       //nolint:gosec // the proxy is this test's
		{"HTTP/2", []string{"--port", "0", "--tls", "--write-kubeconfig", written}, []string{""}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}, //nolint:gosec // the proxy is this test's
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := c.args
			if i := len(args) - 1; args[i] == written { // each proxy its own
				args = append(args[:i:i], filepath.Join(t.TempDir(), "config"))
			}
			p := start(t, kubeconfig, args...)
			network := "tcp"
			if strings.HasPrefix(p.address, "/") {
				network = "unix"
			}
			plainHTTP := !strings.Contains(strings.Join(args, " "), "--tls")
			var watch *bufio.Reader
			if plainHTTP {
				nc, err := net.Dial(network, p.address)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_, _ = io.WriteString(nc, "GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
				watch = bufio.NewReader(nc)
				if line, err := watch.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
					t.Fatalf("the watch: %q, %v", line, err)
				}
			}
			before := p.descriptors(t)
			errs := make(chan error, clients)
			var open sync.WaitGroup
			for i := range clients {
				open.Go(func() { errs <- staySilent(network, p.address, c.tls, c.say[i%len(c.say)]) })
			}
			if plainHTTP {
				if status, _ := p.get(t, "/api"); status != http.StatusOK {
					t.Errorf("beside silent clients: status %d", status)
				}
			}
			open.Wait()
			close(errs)
			for err := range errs {
				if err != nil {
					t.Error(err)
				}
			}
			daemontest.Eventually(t, bound, func() error {
				if now := p.descriptors(t); now > before+2 { // idle connections to the API server
					return fmt.Errorf("%d descriptors are open, %d before", now, before)
				}
				return nil
			})
			if plainHTTP && watchEnded(watch) {
				t.Error("the watch was cut")
			}
		})
	}
}

// staySilent connects, sends a beginning, and waits until the proxy closes the connection.
func staySilent(network, address string, config *tls.Config, beginning string) error {
	nc, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer nc.Close()
	start := time.Now()
	_ = nc.SetDeadline(start.Add(silence + late))
	c := nc
	if config != nil {
		tc := tls.Client(nc, config)
		if err := tc.Handshake(); err != nil {
			return err
		}
		c = tc
	}
	_, _ = io.WriteString(c, beginning)
	_, err = io.Copy(io.Discard, c) // a refusal may come first
	if took := time.Since(start); took >= silence+late || os.IsTimeout(err) {
		return fmt.Errorf("after %q, a silent client is still connected after %v: %w", beginning, took, err)
	}
	return nil
}

// watchEnded reports whether an answer ended that goes on: nothing comes, but no end either.
func watchEnded(r *bufio.Reader) bool {
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, r); close(ended) }()
	select {
	case <-ended:
		return true
	case <-time.After(200 * time.Millisecond):
		return false
	}
}
