// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"
)

// Streams are a command's; nil ones are not opened. With a terminal there is no Stderr.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
}

// Tool is the command line of testpod in a Pod: of the image, or, where exec runs
// commands on this machine, of a file of it.
func (c *Cluster) Tool(args ...string) []string { return append([]string{c.tool}, args...) }

// Exec runs a command in a Pod.
func (c *Cluster) Exec(ctx context.Context, pod string, command []string, s Streams) error {
	return c.remote(ctx, pod, "exec", &corev1.PodExecOptions{
		Command: command, Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil, TTY: s.TTY,
	}, s)
}

// Attach joins a Pod's first container.
func (c *Cluster) Attach(ctx context.Context, pod string, s Streams) error {
	return c.remote(ctx, pod, "attach", &corev1.PodAttachOptions{
		Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil, TTY: s.TTY,
	}, s)
}

// remote speaks WebSocket and falls back to SPDY, as kubectl does.
func (c *Cluster) remote(ctx context.Context, pod, subresource string, options any, s Streams) error {
	request := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(Namespace).Name(pod).SubResource(subresource)
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		request = request.VersionedParams(o, scheme.ParameterCodec)
	case *corev1.PodAttachOptions:
		request = request.VersionedParams(o, scheme.ParameterCodec)
	}
	plain, err := remotecommand.NewSPDYExecutor(c.Config, http.MethodPost, request.URL())
	if err != nil {
		return err
	}
	ws, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, request.URL().String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(ws, plain, isUpgradeFailure)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
}

func isUpgradeFailure(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// Logs opens a Pod's log.
func (c *Cluster) Logs(ctx context.Context, pod string, o corev1.PodLogOptions) (io.ReadCloser, error) {
	return c.Client.CoreV1().Pods(Namespace).GetLogs(pod, &o).Stream(ctx)
}

// Forward forwards a port of this machine to a Pod until ctx ends or stop is called.
func (c *Cluster) Forward(ctx context.Context, pod string, port int) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	url := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(Namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		cancel()
		return "", nil, err
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ws, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.Config)
	if err != nil {
		cancel()
		return "", nil, err
	}
	ready, done := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(portforward.NewFallbackDialerForStreaming(ws, plain, isUpgradeFailure),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, err
	}
	var ended error
	go func() {
		defer close(done)
		ended = forwarder.ForwardPorts()
	}()
	select {
	case <-done:
		cancel()
		return "", nil, errors.Join(ended, errors.New("the forwarding ended at once"))
	case <-ready:
	}
	local, err := forwarder.GetPorts()
	if err != nil {
		cancel()
		return "", nil, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local[0].Local))), func() { cancel(); <-done }, nil
}

// EchoPort is the port of the server's Pod that gives back what it gets.
const EchoPort = 7070

// ServiceGet asks the test server through the Service proxy. The server closes
// each connection, so each call is a dial through the tunnel.
func (c *Cluster) ServiceGet(ctx context.Context, path string, query map[string]string) ([]byte, error) {
	return c.Client.CoreV1().Services(Namespace).ProxyGet("http", ServerName, "http", path, query).DoRaw(ctx)
}

// ServicePost sends a body to the test server through the Service proxy.
func (c *Cluster) ServicePost(ctx context.Context, path string, body []byte) ([]byte, error) {
	return c.Client.CoreV1().RESTClient().Post().Namespace(Namespace).Resource("services").
		Name("http:" + ServerName + ":http").SubResource("proxy").Suffix(path).Body(body).DoRaw(ctx)
}

// NodeHealthz asks a node's kubelet for its health through the API server.
func (c *Cluster) NodeHealthz(ctx context.Context, node string) error {
	body, err := c.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("healthz").DoRaw(ctx)
	if err == nil && strings.TrimSpace(string(body)) != "ok" {
		err = fmt.Errorf("the kubelet of %s says %q", node, body)
	}
	return err
}

// simulatedLog is the file that all simulated Pods have as their log.
func (c *Cluster) simulatedLog() string { return filepath.Join(c.StateDir(c.Name), "config/pod.log") }

// Print makes the server's Pod write numbered lines into its log, each of size
// bytes and beginning with word.
func (c *Cluster) Print(ctx context.Context, word string, lines, size int) error {
	if !c.Simulated() {
		_, err := c.ServiceGet(ctx, "print", map[string]string{"word": word, "lines": strconv.Itoa(lines), "size": strconv.Itoa(size)})
		return err
	}
	var text bytes.Buffer
	for i := range lines {
		line := fmt.Sprintf("%s %d ", word, i+1)
		fmt.Fprintf(&text, "%s stdout F %s%s\n", time.Now().UTC().Format(time.RFC3339Nano), line, strings.Repeat("x", max(0, size-len(line)-1)))
	}
	return c.appendLog(text.Bytes())
}

func (c *Cluster) appendLog(text []byte) error {
	f, err := os.OpenFile(c.simulatedLog(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// Calls are short calls to the test server that kube-apiserver makes through the tunnel, by kind.
func (c *Cluster) Calls() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"service proxy": func(ctx context.Context) error {
			body, err := c.ServiceGet(ctx, "echo", map[string]string{"msg": "call"})
			if err == nil && string(body) != "call" {
				err = fmt.Errorf("%q came back", body)
			}
			return err
		},
		"logs": func(ctx context.Context) error {
			log, err := c.Logs(ctx, ServerName, corev1.PodLogOptions{TailLines: ptr.To[int64](1)})
			if err != nil {
				return err
			}
			defer log.Close()
			_, err = io.Copy(io.Discard, log)
			return err
		},
		"exec": func(ctx context.Context) error {
			return c.Exec(ctx, ServerName, c.Tool("exit", "0"), Streams{Stdout: io.Discard})
		},
	}
}
