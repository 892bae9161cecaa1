// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

func podAt(name string, port uint16) gateway.Destination {
	return gateway.Destination{
		Host: name, Port: port, Kind: gateway.KindPod, Namespace: "default", Name: name,
		Addr: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), port), Pod: types.NamespacedName{Namespace: "default", Name: name}, Node: "node-1",
	}
}

type forwardTest struct {
	*clustertest.Cluster
	kubelet *clustertest.Kubelet
}

// TestPortForward dials through a real API server and the kubelet's own streaming code.
func TestPortForward(t *testing.T) {
	c := forwardTest{clustertest.Start(t), clustertest.StartKubelet(t)}
	c.Node("node-1", "127.0.0.1", c.kubelet.On)
	c.Pod("default", "web", "node-1", []string{"10.1.0.1"})
	for name, test := range map[string]func(*testing.T, forwardTest){
		"bytes": forwardBytes, "shared": forwardShared, "unshared": forwardUnshared, "half-close": forwardHalfClose, "refused": forwardRefused, "pod gone": forwardPodGone,
		"forbidden": forwardForbidden, "spdy": forwardSPDY, "api server gone": forwardLost, "node": forwardNode,
		"stalled": forwardStalled, "idle": forwardIdle, "deadlines": forwardDeadlines, "not a pod": forwardNotAPod, "leaks": forwardLeaks, "bound": forwardBound, "proxy": forwardThroughProxy,
		"silent path": forwardSilent, "buffers": forwardBuffers, "slow ends": forwardSlow, "client gone": forwardClientGone,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "leaks" { // it looks for goroutines of the whole process
				t.Parallel()
			}
			test(t, c)
		})
	}
}

func (c forwardTest) dialer(t testing.TB, o Options) Dialer {
	t.Helper()
	if o.Config == nil {
		o.Config = c.Config
	}
	return newDialer(t, ViaPortForward, o)
}

// forwardBytes: what is sent arrives whole and unchanged, in both directions at once.
func forwardBytes(t *testing.T, c forwardTest) {
	conn := mustDial(t, c.dialer(t, Options{}), podAt("web", listen(t, echo)))
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("sent %d bytes, got %d, equal: %v, %v", len(sent), len(got), bytes.Equal(got, sent), err)
	}
	if _, ok := conn.LocalAddr().(*net.TCPAddr); !ok {
		t.Errorf("local address %T: SOCKS5 servers expect *net.TCPAddr", conn.LocalAddr())
	}
}

// forwardShared: connections to a Pod share upstream connections, up to a bound.
func forwardShared(t *testing.T, c forwardTest) {
	c.Pod("default", "shared", "node-1", []string{"10.1.0.1"})
	d, to := c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 1, StreamsPerConnection: 8}}), podAt("shared", listen(t, echo))
	var wg sync.WaitGroup
	for i := range 32 {
		conn := mustDial(t, d, to)
		wg.Go(func() { ping(t, conn, "word "+strconv.Itoa(i)) })
	}
	wg.Wait()
	if n := c.kubelet.Connections("shared"); n != 4 {
		t.Errorf("32 connections use %d upstream connections, want 4 for 8 each", n)
	}
}

// forwardUnshared: the first connections to a Pod have an upstream connection each, so that a client
// that reads nothing delays no other. One that is free is used again, and later ones are shared.
func forwardUnshared(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 4, ReceiveBuffer: 128 << 10, StallTimeout: time.Hour, Linger: time.Hour}})
	c.Pod("default", "unshared", "node-1", []string{"10.1.0.1"})
	for range 5 {
		conn := mustDial(t, d, podAt("unshared", listen(t, echo)))
		ping(t, conn, "alone")
		_ = conn.Close()
		daemontest.Eventually(t, time.Minute, func() error { return free(d) })
	}
	if n := c.kubelet.Connections("unshared"); n != 1 {
		t.Errorf("5 connections, one after another, use %d upstream connections, want 1", n)
	}
	neighbors := []gateway.Conn{mustDial(t, d, podAt("unshared", listen(t, echo)))}
	stalled := mustDial(t, d, podAt("unshared", listen(t, pour)))
	daemontest.Eventually(t, time.Minute, func() error {
		if !stalled.(*slotted).Conn.(*forwarded).in.full() {
			return errors.New("the buffer of the stalled client is not full")
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 5 { // two that have one of their own, and three that share
		neighbors = append(neighbors, mustDial(t, d, podAt("unshared", listen(t, echo))))
	}
	for i, conn := range neighbors {
		wg.Go(func() { ping(t, conn, "word "+strconv.Itoa(i)) }) // fails if the stalled client holds it up
	}
	wg.Wait()
	if n := c.kubelet.Connections("unshared"); n != 4 {
		t.Errorf("7 connections use %d upstream connections, want 4", n)
	}
	// Several dials at a time make what they need, and no more.
	d = c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 4}})
	before := c.kubelet.Connections("unshared")
	to := podAt("unshared", listen(t, echo))
	for i := range 12 {
		wg.Go(func() {
			conn, err := d.Dial(t.Context(), to)
			if err != nil {
				t.Error(err)
				return
			}
			ping(t, conn, "word "+strconv.Itoa(i))
		})
	}
	wg.Wait()
	if n := c.kubelet.Connections("unshared") - before; n != 4 {
		t.Errorf("12 connections at a time use %d upstream connections, want 4", n)
	}
}

// free reports whether a dialer has an upstream connection without streams.
func free(d Dialer) error {
	p := d.(*dialer).path.(*portForward)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pc := range p.pods {
		for _, u := range pc.conns {
			if u.load() == 0 {
				return nil
			}
		}
	}
	return errors.New("no upstream connection is free")
}

// forwardClientGone: a destination that sends without end, or says nothing, learns that its client has gone, though the protocol has
// no way to tell it so: its upstream connection ends, once the others that share it have.
func forwardClientGone(t *testing.T, c forwardTest) {
	for name, serve := range map[string]func(*net.TCPConn){"sends": pour, "waits": func(nc *net.TCPConn) {
		_, _ = nc.Write([]byte("hello"))
		_, _ = io.Copy(io.Discard, nc) // the client's direction ends; this one does not
		for {
			if _, err := nc.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // how often this destination sends
		}
	}} {
		for _, neighbors := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, %d neighbors", name, neighbors), func(t *testing.T) {
				t.Parallel()
				clientGone(t, c, fmt.Sprint("gone-", name, "-", neighbors), serve, neighbors > 0)
			})
		}
	}
}

func clientGone(t *testing.T, c forwardTest, pod string, serve func(*net.TCPConn), shares bool) {
	c.Pod("default", pod, "node-1", []string{"10.1.0.1"})
	d := c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 1, Linger: 200 * time.Millisecond}})
	learned := make(chan struct{})
	gone := mustDial(t, d, podAt(pod, listen(t, func(nc *net.TCPConn) { serve(nc); close(learned) })))
	if _, err := gone.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	to := podAt(pod, listen(t, echo))
	var neighbor gateway.Conn
	if shares {
		neighbor = mustDial(t, d, to)
		ping(t, neighbor, "before")
	}
	_ = gone.Close()
	if shares {
		daemontest.Eventually(t, time.Minute, func() error { // a new client does not share what is to end
			ping(t, neighbor, "beside")
			other := mustDial(t, d, to)
			defer other.Close()
			ping(t, other, "new")
			if c.kubelet.Connections(pod) == 1 {
				return errors.New("a new client shares the connection to the API server")
			}
			return nil
		})
		_ = neighbor.Close()
	}
	select {
	case <-learned:
	case <-time.After(time.Minute):
		t.Error("the destination does not learn that the client has gone")
	}
	ping(t, mustDial(t, d, to), "afterwards")
}

// forwardHalfClose: the destination sees the end of what the client sends, and the client
// still gets the answer.
func forwardHalfClose(t *testing.T, c forwardTest) {
	conn := mustDial(t, c.dialer(t, Options{}), podAt("web", listen(t, answerAtEnd)))
	if _, err := io.WriteString(conn, "question"); err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "question" {
		t.Errorf("got %q, %v", got, err)
	}
}

// forwardRefused: the node's report arrives as a failed dial.
func forwardRefused(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{PortForward: PortForwardOptions{Settle: testTimeout}})
	wantReason(t, d, podAt("web", refusing(t)), gateway.ReasonRefused, "connection refused", "default/web")
	// The upstream is not harmed.
	ping(t, mustDial(t, c.dialer(t, Options{}), podAt("web", listen(t, echo))), "after")
}

func forwardPodGone(t *testing.T, c forwardTest) {
	wantReason(t, c.dialer(t, Options{}), podAt("gone", 80), gateway.ReasonNotFound, "default/gone", "not found")
}

// forwardForbidden: the error names the missing right.
func forwardForbidden(t *testing.T, c forwardTest) {
	wantReason(t, c.dialer(t, Options{Config: c.As("jane")}), podAt("web", 80), gateway.ReasonDenied, "pods/portforward", "create")
}

// forwardSPDY: a user whose rights allow SPDY, but not WebSockets, which begin with GET, is
// served as well.
func forwardSPDY(t *testing.T, c forwardTest) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spdy"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/portforward"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spdy"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "spdy", APIGroup: rbacv1.GroupName}},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "spdy", APIGroup: rbacv1.GroupName},
	}
	if _, err := c.Client.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d := c.dialer(t, Options{Config: c.As("spdy")})
	to := podAt("web", listen(t, echo))
	daemontest.Eventually(t, testTimeout, func() error { // RBAC is read from a cache
		conn, err := d.Dial(t.Context(), to)
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		ping(t, conn, "over SPDY")
		return conn.Close()
	})
}

// cuttable dials connections that a test can cut all at once.
type cuttable struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			c.mu.Lock()
			c.conns = append(c.conns, conn)
			c.mu.Unlock()
		}
		return conn, err
	}
	return config
}

func (c *cuttable) cut() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	return len(c.conns)
}

// forwardLost: when the API server goes away, open connections fail; they do not seem to
// end. The next dial connects again.
func forwardLost(t *testing.T, c forwardTest) {
	var wire cuttable
	d, to := c.dialer(t, Options{Config: wire.config(c.Config)}), podAt("web", listen(t, echo))
	conn := mustDial(t, d, to)
	ping(t, conn, "before")
	if wire.cut() == 0 {
		t.Fatal("streams do not use the Dial of the configuration")
	}
	_, err := conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, io.EOF) || gateway.ReasonOf(err) != gateway.ReasonPathDown {
		t.Errorf("read after the loss: %v, want reason %s", err, gateway.ReasonPathDown)
	}
	ping(t, mustDial(t, d, to), "again")
}

// forwardNode: a node is reached through a Pod in its network, and not through another.
func forwardNode(t *testing.T, c forwardTest) {
	to := gateway.Destination{Host: "node-1", Port: listen(t, echo), Kind: gateway.KindNode, Name: "node-1", Node: "node-1"}
	to.Addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), to.Port)
	wantReason(t, c.dialer(t, Options{}), to, gateway.ReasonUnsupported, "no ready Pod in its own network")
	c.Pod("default", "host", "node-1", []string{"127.0.0.1"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	d := c.dialer(t, Options{})
	daemontest.Eventually(t, time.Minute, func() error { // the API server lists Pods from its watch cache
		conn, err := d.Dial(t.Context(), to)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	ping(t, mustDial(t, d, to), "node")
	wantReason(t, c.dialer(t, Options{Config: c.As("jane")}), to, gateway.ReasonDenied, "list Pods")

	// A rollout replaces the Pod. Another one is found at once.
	remove := func(pod string) {
		t.Helper()
		now := int64(0)
		if err := c.Client.CoreV1().Pods("default").Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	c.Pod("default", "host-2", "node-1", []string{"127.0.0.1"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	fresh := c.dialer(t, Options{}) // one without an upstream connection to the Pod, but with the Pod in mind
	p := fresh.(*dialer).path.(*portForward)
	p.hosts["node-1"] = hostPod{types.NamespacedName{Namespace: "default", Name: "host"}, time.Now().Add(time.Hour)}
	remove("host")
	ping(t, mustDial(t, fresh, to), "through the other Pod")
	// If there is no other, the failure of the Pod is reported.
	p = c.dialer(t, Options{}).(*dialer).path.(*portForward)
	p.hosts["node-1"] = hostPod{types.NamespacedName{Namespace: "default", Name: "host-2"}, time.Now().Add(time.Hour)}
	remove("host-2")
	wantReason(t, p, to, gateway.ReasonNotFound, "default/host-2")
	if _, known := p.hosts["node-1"]; known {
		t.Error("a Pod that is gone is still assumed")
	}
}

// forwardStalled: a client that reads nothing does not hold up others for long, and sees an
// error rather than an end. SPDY has no flow control, so that takes buffers and a reset.
func forwardStalled(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{PortForward: PortForwardOptions{UnsharedConnections: 1, ReceiveBuffer: 128 << 10, StallTimeout: time.Second}})
	to := podAt("web", listen(t, echo))
	neighbor := mustDial(t, d, to)
	stalled := mustDial(t, d, podAt("web", listen(t, pour)))
	up := stalled.(*slotted).Conn.(*forwarded).up
	daemontest.Eventually(t, testTimeout, func() error {
		ping(t, neighbor, "word")
		other := mustDial(t, d, to)
		ping(t, other, "new")
		_ = other.Close()
		up.mu.Lock()
		defer up.mu.Unlock()
		if !up.retired {
			return errors.New("the stalled connection is not reset")
		}
		return nil
	})
	n, err := io.Copy(io.Discard, stalled)
	if gateway.ReasonOf(err) != gateway.ReasonBusy {
		t.Errorf("the stalled client read %d bytes and got %v, want reason %s", n, err, gateway.ReasonBusy)
	}
}

// forwardIdle: the upstream of a Pod ends when it has had no connections for a time.
func forwardIdle(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{PortForward: PortForwardOptions{IdleTimeout: 100 * time.Millisecond}})
	to := podAt("web", listen(t, echo))
	p := d.(*dialer).path.(*portForward)
	conn := mustDial(t, d, to)
	time.Sleep(500 * time.Millisecond) // several times as long as an idle one is kept
	ping(t, conn, "an open connection is not idle time")
	_ = conn.Close()
	daemontest.Eventually(t, testTimeout, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.pods) > 0 {
			return errors.New("the idle upstream is not closed")
		}
		return nil
	})
	ping(t, mustDial(t, d, to), "again")
}

// forwardDeadlines: reads, writes and dials end in time, also if the other side is stuck.
func forwardDeadlines(t *testing.T, c forwardTest) {
	conn := mustDial(t, c.dialer(t, Options{}), podAt("web", listen(t, silent)))
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	stuck := rest.CopyConfig(c.Config)
	stuck.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(listen(t, silent)))))
	}
	wantReason(t, c.dialer(t, Options{Config: stuck, Timeout: 200 * time.Millisecond}), podAt("web", 80), gateway.ReasonTimeout)
	gone := rest.CopyConfig(c.Config)
	gone.Host = "https://127.0.0.1:" + strconv.Itoa(int(refusing(t)))
	wantReason(t, c.dialer(t, Options{Config: gone}), podAt("web", 80), gateway.ReasonPathDown, "check that the API server answers")
}

// forwardNotAPod: the path says what it cannot reach, and what can.
func forwardNotAPod(t *testing.T, c forwardTest) {
	d := c.dialer(t, Options{})
	to := podAt("web", 80)
	to.Kind, to.Pod = gateway.KindService, types.NamespacedName{}
	wantReason(t, d, to, gateway.ReasonUnsupported, "--via direct")
	wantReason(t, d, gateway.Destination{Host: "example.com", Port: 80, Kind: gateway.KindExternal}, gateway.ReasonUnsupported, "--via ssh")
}

// forwardLeaks: Close ends every goroutine, with connections open, and clients see that.
func forwardLeaks(t *testing.T, c forwardTest) {
	d, err := New(ViaPortForward, Options{Config: c.Config})
	if err != nil {
		t.Fatal(err)
	}
	port := listen(t, func(conn *net.TCPConn) { silent(conn) })
	conn, err := d.Dial(t.Context(), podAt("web", port))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read after Close: %v", err)
	}
	_ = conn.Close()
	wantReason(t, d, podAt("web", port), gateway.ReasonPathDown, "closed")
	noLeaks(t)
}
