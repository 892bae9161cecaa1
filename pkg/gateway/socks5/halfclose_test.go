// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// whole is a destination that can be closed as a whole only, as through a konnectivity-server
// in mode grpc.
type whole struct{ gateway.Conn }

func (whole) CloseWrite() error { return errors.ErrUnsupported }

// dialWhole makes all destinations of a world such ones.
func dialWhole(w *world) {
	w.dial = func(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", d.Addr.String())
		if err != nil {
			return nil, err
		}
		return whole{nc.(*net.TCPConn)}, nil
	}
}

// TestDestinationWithoutHalfClose: a client that has ended its direction gets all of the
// answer, however long that takes, if the path cannot tell the destination.
func TestDestinationWithoutHalfClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dialWhole(w)
	const pieces = 4
	w.name("slow.default", serveTCP(t, func(nc *net.TCPConn) {
		_, _ = io.ReadFull(nc, make([]byte, len("request")))
		for range pieces {
			time.Sleep(drainTime * 2 / 3) // in all longer than the silence after which a destination is closed
			_, _ = io.WriteString(nc, "piece")
		}
	}))
	nc := mustConnect(t, w, "slow.default")
	_, _ = io.WriteString(nc, "request")
	_ = nc.CloseWrite()
	if got, err := io.ReadAll(nc); string(got) != strings.Repeat("piece", pieces) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if r := w.ended(t, 1)[0]; r.Result != ResultOK || r.Error != "" {
		t.Errorf("%+v", r)
	}
}

// TestSilentDestinationWithoutHalfClose: a destination that waits for the client's end, of
// which it does not hear, is closed. The client sees a reset: its answer may be missing.
func TestSilentDestinationWithoutHalfClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dialWhole(w)
	closed := make(chan struct{})
	w.name("waits.default", serveTCP(t, func(nc *net.TCPConn) {
		defer close(closed)
		_, _ = io.Copy(io.Discard, nc)
	}))
	nc := mustConnect(t, w, "waits.default")
	_, _ = io.WriteString(nc, "request")
	_ = nc.CloseWrite()
	if got, err := io.ReadAll(nc); len(got) > 0 || err == nil {
		t.Errorf("the client reads %q and an orderly end, want a reset", got)
	}
	<-closed
	if r := w.ended(t, 1)[0]; r.Result != ResultAborted || !strings.Contains(r.Error, "half") {
		t.Errorf("%+v", r)
	}
}

// TestClientThatHasLeft: a client that closes its socket once it has what it wants, before the
// destination ends, is no failure.
func TestClientThatHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("late.default", serveTCP(t, func(nc *net.TCPConn) {
		_, _ = io.WriteString(nc, "answer")
		_, _ = io.Copy(io.Discard, nc) // until the client has gone
		_, _ = io.WriteString(nc, "bye")
		time.Sleep(100 * time.Millisecond) // in which the client's system answers with a reset
	}))
	nc := mustConnect(t, w, "late.default")
	readFull(t, nc, make([]byte, len("answer")))
	_ = nc.Close()
	if r := w.ended(t, 1)[0]; r.Result != ResultOK || r.Error != "" {
		t.Errorf("%+v", r)
	}
}
