// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// machineIP is an address of this machine that is not loopback, to which the server denies connections.
func machineIP(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback: add one")
	return ""
}

// clusterOfOne is the kubeconfig of a cluster with nothing but a node, which has the address.
func clusterOfOne(t *testing.T, ip string) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items := ""
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			items = `{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"` + ip + `"}]}}`
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, items)
	}))
	t.Cleanup(api.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// connectThrough opens a connection through an agent.
func connectThrough(cfg *rest.Config, agent, address string) (*wsconn.Conn, error) {
	secure, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := websocket.Dialer{TLSClientConfig: secure, Subprotocols: []string{wsconn.Protocol}, HandshakeTimeout: tunneltest.Patience}
	ws, resp, err := dialer.Dial(fmt.Sprintf("wss%s%s/tunnelagents/%s/%s?host=%s&port=%s", strings.TrimSuffix(strings.TrimPrefix(cfg.Host, "https"), "/"), v1alpha1.Path,
		agent, v1alpha1.SubresourceConnect, host, port), http.Header{"Authorization": {"Bearer " + cfg.BearerToken}})
	if resp != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	switch {
	case err != nil && resp != nil:
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%w: %s: %s", err, resp.Status, body)
	case err != nil:
		return nil, err
	}
	_ = ws.SetReadDeadline(time.Now().Add(tunneltest.Patience))
	return wsconn.New(ws), nil
}

// echoes fails unless the other end sends back what it gets.
func echoes(t *testing.T, c *wsconn.Conn) {
	t.Helper()
	got := make([]byte, 4)
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Errorf("write: %v", err)
	} else if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestStopConnects: after SIGTERM the server opens connections through agents for as long as it is an endpoint. Then open ones have their time to end.
func TestStopConnects(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	o, ip := NewOptions(), machineIP(t)
	o.ShutdownDelay, o.ServeConnect, o.ConnectDrain, o.Kubeconfig = 8*time.Second, true, 2*time.Second, clusterOfOne(t, ip)
	o.Authentication.SkipInClusterLookup = true
	ctx, terminate := context.WithCancel(context.Background())
	defer terminate()
	cfg, done := launchUntil(ctx, t, o, "unix://"+showState(t, rig))
	target := tunneltest.TargetAt(t, net.JoinHostPort(ip, "0"), tunneltest.Echo)
	var before *wsconn.Conn
	tunneltest.Eventually(t, tunneltest.Patience, "a connection", func() bool {
		c, err := connectThrough(cfg, "a1", target)
		before = c
		return err == nil
	})
	begin := time.Now()
	terminate()
	tunneltest.Eventually(t, o.ShutdownDelay, "the server is not ready", func() bool {
		_, err := get(cfg, "/readyz", "")
		return err != nil
	})
	during, err := connectThrough(cfg, "a1", target)
	if err != nil {
		t.Fatalf("a connection while the server is an endpoint, after %v: %v", time.Since(begin), err)
	}
	for _, c := range []*wsconn.Conn{before, during} {
		echoes(t, c)
	}
	for _, c := range []*wsconn.Conn{before, during} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection that was open at the end sends %d bytes", n)
		}
	}
	if took, least := time.Since(begin), o.ShutdownDelay+o.ConnectDrain; took < least {
		t.Errorf("open connections were cut after %v, before %v", took, least)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(tunneltest.Patience):
		t.Fatalf("the server runs %v after SIGTERM", time.Since(begin))
	}
}
