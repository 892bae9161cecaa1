// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// A forwarded port carries many connections at once, each with its own data.
// It observes KON-10 of docs/requirements.md.
func TestPortForward(t *testing.T) {
	run(t, "port-forward", 2*time.Minute, step{"fifty connections at once", func(ctx context.Context, t *testing.T) {
		address, stop, err := suite.Forward(ctx, harness.ServerName, harness.EchoPort)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := echo(ctx, address, randomBytes(64<<10)); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}})
}

// echo sends data and wants it back.
func echo(ctx context.Context, address string, sent []byte) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		wrote <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return io.ErrUnexpectedEOF
	}
	return <-wrote
}

// The API server's proxies reach every node, a Pod and a Service.
// It observes KON-09a and KON-10 of docs/requirements.md.
func TestProxies(t *testing.T) {
	run(t, "proxies", 2*time.Minute,
		step{"every node's kubelet", func(ctx context.Context, t *testing.T) {
			nodes, err := suite.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil || len(nodes.Items) != 3 {
				t.Fatalf("want 3 nodes, got %d, %v", len(nodes.Items), err)
			}
			for _, n := range nodes.Items {
				if err := suite.NodeHealthz(ctx, n.Name); err != nil {
					t.Errorf("node %s: %v", n.Name, err)
				}
			}
		}},
		step{"a Pod", func(ctx context.Context, t *testing.T) {
			port := "8080"
			if suite.Simulated() { // the server behind the Pod listens where there was room
				service, err := suite.Client.CoreV1().Services(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				port = service.Spec.Ports[0].TargetPort.String()
			}
			body, err := suite.Client.CoreV1().Pods(harness.Namespace).ProxyGet("http", harness.ServerName, port, "echo", map[string]string{"msg": "pod"}).DoRaw(ctx)
			if err != nil || string(body) != "pod" {
				t.Errorf("%q, %v", body, err)
			}
		}},
		step{"a Service, by name of a port", func(ctx context.Context, t *testing.T) {
			body, err := suite.ServiceGet(ctx, "echo", map[string]string{"msg": "service"})
			if err != nil || string(body) != "service" {
				t.Errorf("%q, %v", body, err)
			}
		}},
		step{"eight mebibytes arrive whole", func(ctx context.Context, t *testing.T) {
			sent := randomBytes(8 * mebibyte)
			body, err := suite.ServicePost(ctx, "sum", sent)
			if err != nil || strings.TrimSpace(string(body)) != sumOf(sent) {
				t.Errorf("%q, %v; want %s", body, err, sumOf(sent))
			}
		}},
		step{"a port without a listener", func(ctx context.Context, t *testing.T) {
			body, err := suite.Client.CoreV1().RESTClient().Get().Namespace(harness.Namespace).Resource("pods").
				Name(harness.ServerName + ":9").SubResource("proxy").Do(ctx).Raw()
			if err == nil || !strings.Contains(string(body), "refused") {
				t.Errorf("want a refused connection, got %q, %v", body, err)
			}
		}},
	)
}
