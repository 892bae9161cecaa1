// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// Kubelet serves /portForward as a kubelet with containerd does, with the code that both use.
// The Pods of its node share the loopback device of this machine.
type Kubelet struct {
	Port   int32
	server *httptest.Server

	mu          sync.Mutex
	connections map[string]int
}

// Connections returns the number of port-forwards to a Pod that have begun, each with many streams.
func (k *Kubelet) Connections(pod string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.connections[pod]
}

// StartKubelet serves a kubelet for as long as the test.
func StartKubelet(t testing.TB) *Kubelet {
	t.Helper()
	k := &Kubelet{connections: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		k.connections[r.PathValue("pod")]++
		k.mu.Unlock()
		portforward.ServePortForward(w, r, loopback{}, r.PathValue("pod"), "", nil, 4*time.Hour, 30*time.Second, portforward.SupportedProtocols)
	})
	k.server = httptest.NewUnstartedServer(mux)
	k.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.server.StartTLS()
	t.Cleanup(func() { k.server.CloseClientConnections() })
	_, port, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	k.Port = int32(n)
	return k
}

// On makes the kubelet that of a node.
func (k *Kubelet) On(n *corev1.Node) {
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = k.Port
}

// loopback connects to ports as containerd does in a Pod's network namespace.
type loopback struct{}

// PortForward copies between a stream and a port.
func (loopback) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	c, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf(`failed to execute portforward in network namespace "/var/run/netns/cni-1": failed to connect to localhost:%d inside namespace "1", IPv4: %w`, port, err)
	}
	defer c.Close()
	down := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, c)
		down <- err
	}()
	_, up := io.Copy(c, stream)
	_ = c.(*net.TCPConn).CloseWrite()
	return errors.Join(up, <-down)
}
