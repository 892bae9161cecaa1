// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// portForward forwards a local port to the pod, sends something through it and compares what comes back.
func (s *Scope) portForward(ctx context.Context, pod *corev1.Pod) error {
	return Forward(ctx, s.Config, s.Client, pod, s.Probe.PortForwardPort, s.useForward)
}

// Forward forwards a local port to the pod's port, as "kubectl port-forward" does, and calls use with the local address.
func Forward(ctx context.Context, config *rest.Config, client kubernetes.Interface, pod *corev1.Pod, port int32, use func(ctx context.Context, address string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	var log lockedBuffer
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	forwarder, err := forwarder(ctx, config, url, port, ready, &log)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	var ended error
	go func() {
		defer close(done)
		ended = forwarder.ForwardPorts()
	}()
	select {
	case <-done:
		if ended == nil {
			ended = errors.New("the connection was closed at once")
		}
		return ended
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	if err := use(ctx, fmt.Sprintf("127.0.0.1:%d", ports[0].Local)); err != nil {
		return fmt.Errorf("%w %s", err, strings.TrimSpace(log.String()))
	}
	cancel()
	<-done
	return nil
}

// forwarder speaks WebSocket and falls back to SPDY, as kubectl does. The forward ends with ctx.
func forwarder(ctx context.Context, config *rest.Config, url *url.URL, port int32, ready chan struct{}, log io.Writer) (*portforward.PortForwarder, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	tunneled, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(tunneled, plain, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ports := []string{fmt.Sprintf("0:%d", port)}
	return portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, ctx.Done(), ready, io.Discard, log)
}

func (s *Scope) useForward(ctx context.Context, address string) error {
	word := randomText(24)
	if s.Probe.PortForwardRaw {
		return echo(ctx, address, word)
	}
	path := strings.ReplaceAll(s.Probe.PortForwardPath, "%s", word)
	want := ""
	if path != s.Probe.PortForwardPath {
		want = word
	}
	return httpHas(ctx, "http://"+address+path, want)
}

// echo sends word to address and wants it back.
func echo(ctx context.Context, address, word string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, word); err != nil {
		return fmt.Errorf("write to the forwarded port: %w", err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("read from the forwarded port: %w", err)
	}
	if string(got) != word {
		return fmt.Errorf("sent %q through the forwarded port, but got %q", word, got)
	}
	return nil
}

func httpHas(ctx context.Context, url, want string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("GET through the forwarded port: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("GET through the forwarded port: %w", err)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(want)) {
		return fmt.Errorf("GET through the forwarded port: want %q, got %s: %.200q", want, resp.Status, body)
	}
	return nil
}

// lockedBuffer collects what the forwarder says from its own goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
