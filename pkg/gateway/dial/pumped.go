// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// pumped adds deadlines and addresses to connections of clients that lack them: upstream's
// for gRPC, and that of SSH.
type pumped struct {
	conn io.ReadWriteCloser
	to   gateway.Destination
	// halfClose ends what is sent. Without it, CloseWrite fails with noHalfClose.
	halfClose   func() error
	noHalfClose error
	// lost returns an error if the connection ended because the path did.
	lost func() error
	// down is closed when the path ends.
	down <-chan struct{}
	// end releases what belongs to the connection.
	end func()

	goroutines *sync.WaitGroup
	in, out    *buffer
	sent       chan struct{} // closed when nothing more is sent
	closing    chan struct{} // closed by Close
	closed     sync.Once
}

// start moves bytes until the connection ends.
func (p *pumped) start() *pumped {
	p.in, p.out, p.sent = newBuffer(receiveBuffer), newBuffer(sendBuffer), make(chan struct{})
	p.closing = make(chan struct{})
	p.goroutines.Go(p.receive)
	p.goroutines.Go(p.send)
	p.goroutines.Go(p.watch)
	return p
}

// receiveBuffer is small: both protocols have flow control.
const receiveBuffer = 64 << 10

func (p *pumped) receive() {
	chunk := make([]byte, chunkSize)
	for {
		n, err := p.conn.Read(chunk)
		if n > 0 && p.in.take(append([]byte(nil), chunk[:n]...)) != nil {
			break
		}
		if err != nil {
			break
		}
	}
	lost := p.lost()
	p.in.finish(lost)
	if lost != nil || p.halfClose == nil { // nothing more can be sent
		p.out.discard(cmp.Or(lost, io.ErrClosedPipe))
	}
}

// watch ends the connection after Close, or with its path. Close itself starts no goroutine: it may
// be called while the path waits for all of them.
func (p *pumped) watch() {
	defer p.end()
	select {
	case <-p.down:
		lost := cmp.Or(p.lost(), io.ErrClosedPipe)
		p.in.finish(lost)
		p.out.discard(lost)
	case <-p.closing:
		select {
		case <-p.sent:
		case <-time.After(closeGrace):
		case <-p.down:
		}
	}
	done := make(chan struct{})
	p.goroutines.Go(func() {
		defer close(done)
		_ = p.conn.Close()
	})
	select { // upstream's gRPC client waits 10 seconds if it holds bytes that were not read
	case <-done:
	case <-time.After(closeGrace):
	case <-p.down:
	}
}

func (p *pumped) send() {
	defer close(p.sent)
	chunk := make([]byte, chunkSize)
	for {
		n, err := p.out.Read(chunk)
		if n > 0 {
			if _, err := p.conn.Write(append([]byte(nil), chunk[:n]...)); err != nil {
				if lost := p.lost(); lost != nil {
					err = lost
				}
				p.out.discard(err)
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && p.halfClose != nil {
				_ = p.halfClose()
			}
			return
		}
	}
}

// Read reads what the destination sends.
func (p *pumped) Read(b []byte) (int, error) { return p.in.Read(b) }

// Write sends to the destination.
func (p *pumped) Write(b []byte) (int, error) { return p.out.Write(b) }

// CloseWrite ends what is sent, where the protocol has that.
func (p *pumped) CloseWrite() error {
	if p.halfClose == nil {
		return p.noHalfClose
	}
	p.out.finish(nil)
	return nil
}

// Close ends the connection. What was written before is sent, for a few seconds.
func (p *pumped) Close() error {
	p.closed.Do(func() {
		p.in.discard(net.ErrClosed)
		p.out.finish(nil)
		close(p.closing)
	})
	return nil
}

// LocalAddr is not known to the client.
func (p *pumped) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// RemoteAddr returns the destination's address.
func (p *pumped) RemoteAddr() net.Addr { return destinationAddr(p.to) }

// SetDeadline sets both deadlines.
func (p *pumped) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline bounds Read.
func (p *pumped) SetReadDeadline(t time.Time) error {
	p.in.setDeadline(&p.in.readBy, t)
	return nil
}

// SetWriteDeadline bounds Write.
func (p *pumped) SetWriteDeadline(t time.Time) error {
	p.out.setDeadline(&p.out.writeBy, t)
	return nil
}
