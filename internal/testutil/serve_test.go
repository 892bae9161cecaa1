// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// lateListener returns a connection after it was closed, as a real listener does if Accept has taken the connection
// before Close and returns after it.
type lateListener struct {
	conns chan net.Conn
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (*lateListener) Close() error   { return nil }
func (*lateListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestServeLateConnection checks that the end of a test closes a connection that Accept returns only after the cleanup has
// closed all others. The client closes its side later, so the cleanup would wait forever.
func TestServeLateConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lateListener{conns: make(chan net.Conn)}
		stop := serveConns(l, &Conns{}, func(_ *Conns, c net.Conn) { _, _ = io.Copy(c, c) })
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		near, far := net.Pipe()
		l.conns <- far
		close(l.conns)
		synctest.Wait()
		select {
		case <-stopped:
		default:
			t.Error("the cleanup waits for a connection that came late")
		}
		_ = near.Close()
		<-stopped
	})
}

// TestServeClosesConnections checks that the end of a test ends the connections that are open, also those that serve has
// opened itself.
func TestServeClosesConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	served := make(chan struct{})
	stop := serveConns(l, &Conns{}, func(conns *Conns, _ net.Conn) {
		conns.Add(far)
		close(served)
		_, _ = io.Copy(io.Discard, far)
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-served
	stop()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the accepted connection stays open")
	}
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("the further connection stays open")
	}
}
