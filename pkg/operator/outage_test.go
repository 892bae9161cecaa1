// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestStartInOutage: an operator that starts while no API server answers is alive and not ready, and does its
// work as soon as one does, without another start.
func TestStartInOutage(t *testing.T) {
	testutil.Full(t, "an outage, which TestPersist shows without a control plane")
	daemontest.Beside(t)
	e := start(t)
	ports := daemontest.Ports(t, 3)
	door, health := "127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[2]
	cfg := rest.CopyConfig(e.cfg)
	cfg.Host = "https://" + door
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	o := operator.Options{
		Namespace: "kube-system", WebhookAddress: "127.0.0.1:" + ports[1], WebhookURL: "https://127.0.0.1:" + ports[1] + "/convert",
		WebhookNames: []string{"127.0.0.1"}, MetricsAddress: "0", HealthAddress: "127.0.0.1:" + ports[2],
	}
	o.Quick(e.metrics)
	go func() { done <- operator.Run(ctx, cfg, o) }()
	is := func(path string, want int) {
		t.Helper()
		testutil.Eventually(t, bound, func() error {
			if status, text := get(t, nil, health+path, ""); status != want {
				return fmt.Errorf("%s: %d, want %d: %s", path, status, want, text)
			}
			return nil
		})
	}
	is("/healthz", http.StatusOK)
	is("/readyz", http.StatusInternalServerError)
	select {
	case err := <-done:
		t.Fatalf("the operator ended: %v", err)
	case <-time.After(time.Second): // it has tried more than once
	}
	forward(t, door, strings.TrimPrefix(e.cfg.Host, "https://"))
	is("/readyz", http.StatusOK)
	testutil.Eventually(t, bound, func() error {
		_, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{"managementPolicy": "Observe"}), metav1.CreateOptions{})
		return err
	})
	e.reconciled(v1beta1.ReasonDrift)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the operator ended: %v", err)
	}
}

// forward listens at an address, and sends what comes to another one.
func forward(t *testing.T, from, to string) {
	t.Helper()
	listener, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			for _, ends := range [][2]net.Conn{{c, server}, {server, c}} {
				go func() {
					_, _ = io.Copy(ends[0], ends[1])
					_, _ = c.Close(), server.Close()
				}()
			}
		}
	}()
}
