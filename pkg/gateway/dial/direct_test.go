// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// address is a destination by its address alone.
func address(kind gateway.Kind, host string, port uint16) gateway.Destination {
	d := gateway.Destination{Host: host, Port: port, Kind: kind, Name: host}
	if a, err := netip.ParseAddr(host); err == nil {
		d.Addr = netip.AddrPortFrom(a, port)
	}
	return d
}

// TestDirect dials through a real konnectivity-server and agent, in each mode, over a Unix
// socket and over TCP with certificates.
func TestDirect(t *testing.T) {
	t.Parallel()
	deny, err := destinations.ParseRules("*.denied.test")
	if err != nil {
		t.Fatal(err)
	}
	rig := tunneltest.NewRig(t, server.Config{})
	rig.StartAgent(agent.Config{Policy: destinations.Policy{Deny: deny}}, "")
	grpcAddress, connectAddress := rig.FrontendsTLS()
	crt, key := rig.CA.Issue(t, "gateway", time.Now().Add(time.Hour))
	files := func(o DirectOptions) DirectOptions {
		o.CertFile, o.KeyFile, o.CAFile = crt, key, rig.CA.File
		return o
	}
	for name, o := range map[string]DirectOptions{
		"http-connect over a socket": {Socket: rig.Connect},
		"http-connect over TCP":      files(DirectOptions{Address: connectAddress}),
		"grpc over a socket":         {Socket: rig.GRPC, Mode: ModeGRPC},
		"grpc over TCP":              files(DirectOptions{Address: grpcAddress, Mode: ModeGRPC}),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDialer(t, ViaDirect, Options{Direct: o})
			directBytes(t, d, o.Mode == ModeGRPC)
			directRefusals(t, d)
		})
	}
}

// directBytes: what is sent arrives whole; the end of one direction leaves the other open
// where the protocol has that, and elsewhere CloseWrite says so.
func directBytes(t *testing.T, d Dialer, grpc bool) {
	c := mustDial(t, d, address(gateway.KindNode, "127.0.0.1", listen(t, echo)))
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes do not come back as they were sent: %v", len(sent), err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(got[:1]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	if _, ok := c.LocalAddr().(*net.TCPAddr); !ok {
		t.Errorf("local address %T: SOCKS5 servers expect *net.TCPAddr", c.LocalAddr())
	}
	c = mustDial(t, d, address(gateway.KindNode, "127.0.0.1", listen(t, answerAtEnd)))
	if _, err := io.WriteString(c, "question"); err != nil {
		t.Fatal(err)
	}
	err := c.CloseWrite()
	if grpc {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("CloseWrite: %v", err)
		}
		return
	}
	if answer, rerr := io.ReadAll(c); err != nil || rerr != nil || string(answer) != "question" {
		t.Errorf("after the end of the question: %q, %v, %v", answer, err, rerr)
	}
}

// directRefusals: the agent's reason arrives in both modes.
func directRefusals(t *testing.T, d Dialer) {
	wantReason(t, d, address(gateway.KindNode, "127.0.0.1", refusing(t)), gateway.ReasonRefused, "connection refused")
	wantReason(t, d, address(gateway.KindExternal, "255.255.255.255", 80), gateway.ReasonHostUnreachable, "unreachable")
	wantReason(t, d, address(gateway.KindExternal, "does-not-exist.invalid", 80), gateway.ReasonNotFound, "does-not-exist.invalid")
	wantReason(t, d, address(gateway.KindExternal, "a.denied.test", 80), gateway.ReasonDenied, "denied by rule")
}

// TestDirectPathDown: without an agent or without a server, the error says which, and with a
// server that does not answer a dial ends in time.
func TestDirectPathDown(t *testing.T) {
	t.Parallel()
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	rig := tunneltest.NewRig(t, server.Config{})
	stranger := tunneltest.NewCA(t, t.TempDir())
	crt, key := stranger.Issue(t, "gateway", time.Now().Add(time.Hour))
	grpcAddress, connectAddress := rig.FrontendsTLS()
	for mode, sockets := range map[string][2]string{ModeHTTPConnect: {rig.Connect, connectAddress}, ModeGRPC: {rig.GRPC, grpcAddress}} {
		t.Run(mode, func(t *testing.T) {
			wantReason(t, newDialer(t, ViaDirect, Options{Direct: DirectOptions{Socket: sockets[0], Mode: mode}}), to, gateway.ReasonPathDown, "gent")
			gone := filepath.Join(t.TempDir(), "gone")
			wantReason(t, newDialer(t, ViaDirect, Options{Direct: DirectOptions{Socket: gone, Mode: mode}}), to, gateway.ReasonPathDown, gone, "host")
			wantReason(t, newDialer(t, ViaDirect, Options{Direct: DirectOptions{
				Address: sockets[1], Mode: mode, CertFile: crt, KeyFile: key, CAFile: stranger.File,
			}}), to, gateway.ReasonPathDown, "certificate")
			stuck := filepath.Join(tunneltest.ShortDir(t), "s")
			l, err := net.Listen("unix", stuck)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			wantReason(t, newDialer(t, ViaDirect, Options{Timeout: 200 * time.Millisecond, Direct: DirectOptions{Socket: stuck, Mode: mode}}), to, gateway.ReasonTimeout)
		})
	}
}

// TestDirectClose: Close ends open connections and every goroutine.
func TestDirectClose(t *testing.T) {
	rig := tunneltest.NewRig(t, server.Config{})
	rig.StartAgent(agent.Config{}, "")
	to := address(gateway.KindNode, "127.0.0.1", listen(t, silent))
	for mode, socket := range map[string]string{ModeHTTPConnect: rig.Connect, ModeGRPC: rig.GRPC} {
		d, err := New(ViaDirect, Options{Direct: DirectOptions{Socket: socket, Mode: mode}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		_ = d.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: read after Close succeeded", mode)
		}
		_ = c.Close()
		wantReason(t, d, to, gateway.ReasonPathDown, "closed")
	}
	noLeaks(t)
}

// TestLimit: connections beyond the limit are refused, and closed ones do not count.
func TestLimit(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{})
	rig.StartAgent(agent.Config{}, "")
	d := newDialer(t, ViaDirect, Options{MaxConnections: 2, Direct: DirectOptions{Socket: rig.Connect}})
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	first := mustDial(t, d, to)
	mustDial(t, d, to)
	wantReason(t, d, to, gateway.ReasonBusy, "2 connections")
	_ = first.Close()
	_ = first.Close()
	ping(t, mustDial(t, d, to), "a place is free")
	wantReason(t, d, to, gateway.ReasonBusy) // closing twice frees one place
}

// TestFailover: if one endpoint of a Service cannot be reached, another is tried. Other kinds
// and refusals that concern all endpoints are final.
func TestFailover(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{})
	deny, err := destinations.ParseRules("127.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	rig.StartAgent(agent.Config{Policy: destinations.Policy{Deny: deny}}, "")
	good, bad := address(gateway.KindService, "127.0.0.1", listen(t, echo)), address(gateway.KindService, "127.0.0.1", refusing(t))
	asked := 0
	d := newDialer(t, ViaDirect, Options{Direct: DirectOptions{Socket: rig.Connect}, Alternatives: func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
		asked++
		return []gateway.Destination{good}, nil
	}})
	ping(t, mustDial(t, d, bad), "over the other endpoint")
	if asked != 1 {
		t.Errorf("asked %d times for other endpoints, want once", asked)
	}
	// An alternative is judged as the first endpoint was: users write EndpointSlices.
	denied := gateway.WithCheck(t.Context(), func(o gateway.Destination) error {
		if o.Addr == good.Addr {
			return errors.New("denied")
		}
		return nil
	})
	if c, err := d.Dial(denied, bad); err == nil || gateway.ReasonOf(err) != gateway.ReasonRefused {
		t.Errorf("a denied alternative: %v, %v", c, err)
	}
	asked = 1
	bad.Kind = gateway.KindPod
	wantReason(t, d, bad, gateway.ReasonRefused)
	wantReason(t, d, address(gateway.KindService, "127.0.0.9", 80), gateway.ReasonDenied)
	if asked != 1 {
		t.Errorf("asked for other endpoints where there are none")
	}
}

// TestNewRefuses: a path that cannot work is refused at the start, with what to do.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for via, test := range map[string]struct {
		o    Options
		text string
	}{
		"api":         {Options{}, "kubeconfig"},
		"carrier":     {Options{}, "use portforward, api, direct, network or ssh=USER@HOST"},
		"portforward": {Options{}, "kubeconfig"},
		"direct":      {Options{}, "socket or its address"},
		"direct ":     {Options{}, "use portforward"},
		"direct\x00":  {Options{}, "use portforward"},
		"ssh=":        {Options{}, "USER@HOST"},
		"ssh=me@":     {Options{}, "USER@HOST"},
		"ssh=me@h:x":  {Options{}, "port"},
		"ssh=-oProxy": {Options{}, "USER@HOST"},
		"ssh=me@a@:1": {Options{}, "USER@HOST"},
	} {
		d, err := New(via, test.o)
		if err == nil {
			_ = d.Close()
			t.Errorf("%q is accepted", via)
		} else if !strings.Contains(err.Error(), test.text) {
			t.Errorf("%q: %v lacks %q", via, err, test.text)
		}
	}
}
