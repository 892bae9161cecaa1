// SPDX-License-Identifier: Apache-2.0

// Package wsconn carries one TCP connection in one WebSocket, with the ends of its two directions apart. A proxy between
// client and server, such as kube-apiserver, closes both directions of a connection when one ends, so the end of one
// direction is a message.
//
// The subprotocol is [Protocol]. Both sides speak in the same way:
//
//   - A binary message has the next bytes of the connection, at most [MaxMessage] of them.
//   - A binary message without bytes is the end of what its sender sends. Only control frames may follow.
//   - A close frame with status 1000 ends the connection in order, as the close of a socket does. With any other status,
//     or if the WebSocket ends without a close frame, the connection was reset.
//   - Text messages, and longer ones, are errors of the protocol.
//
// There is no flow control besides that of the WebSocket's own TCP connection, because it carries nothing else.
package wsconn

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Protocol is the WebSocket subprotocol.
const Protocol = "v1.connect.tunnel.fairlead.dev"

const (
	// MaxMessage is the most bytes of a message that a receiver takes.
	MaxMessage = 64 << 10
	// chunk is the most that Write puts into one message.
	chunk = 32 << 10
	// closeTime is how long the close frame may take to be sent.
	closeTime = 5 * time.Second
	// maxReason bounds the text of a close frame, which has 125 bytes in all.
	maxReason = 120
)

// ErrReset is the error of a connection that the other side has reset, or that has broken.
var ErrReset = errors.New("the connection was reset")

// Conn is a connection. One goroutine may read and another one write; Close, Abort and Ping may be called by any.
type Conn struct {
	ws *websocket.Conn

	message io.Reader // that is being read; nil between two
	empty   bool      // it has had no bytes yet
	end     error     // what Read returns from now on

	write    sync.Mutex
	finished bool // the end of what is sent was sent; guarded by write

	closing sync.Once
	lost    chan struct{} // closed when the WebSocket is of no more use
	losing  sync.Once
	moved   atomic.Int64 // when bytes were last read or written, in nanoseconds since 1970
}

// New returns the connection in a WebSocket whose subprotocol is Protocol.
func New(ws *websocket.Conn) *Conn {
	c := &Conn{ws: ws, lost: make(chan struct{})}
	c.moved.Store(time.Now().UnixNano())
	ws.SetReadLimit(MaxMessage)
	return c
}

// Lost returns a channel that is closed when the other side has closed the connection or it has broken.
func (c *Conn) Lost() <-chan struct{} { return c.lost }

// Moved returns when bytes were last read or written.
func (c *Conn) Moved() time.Time { return time.Unix(0, c.moved.Load()) }

// Read reads what the other side sends. It returns io.EOF at its orderly end.
func (c *Conn) Read(p []byte) (int, error) {
	for c.end == nil && len(p) > 0 {
		if c.message == nil {
			if err := c.next(); err != nil {
				c.end = err
				c.lose()
				break
			}
		}
		n, err := c.message.Read(p)
		if n > 0 {
			c.empty = false
			c.moved.Store(time.Now().UnixNano())
			return n, nil
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			c.end = broken(err)
			c.lose()
		case c.empty:
			c.message, c.end = nil, io.EOF
			go c.watch()
		default:
			c.message = nil
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return 0, c.end
}

func (c *Conn) next() error {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return broken(err)
	}
	if kind != websocket.BinaryMessage {
		return fmt.Errorf("%w: a message is not binary", ErrReset)
	}
	c.message, c.empty = r, true
	return nil
}

// watch reads after the end of what the other side sends: control frames, and the end of the WebSocket.
func (c *Conn) watch() {
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			c.lose()
			return
		}
		c.Abort("a message after the end")
	}
}

func (c *Conn) lose() { c.losing.Do(func() { close(c.lost) }) }

// broken returns what the end of the WebSocket means: io.EOF, or an error that is ErrReset.
func broken(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		if closed.Code == websocket.CloseNormalClosure {
			return io.EOF
		}
		if closed.Text != "" && closed.Code != websocket.CloseAbnormalClosure {
			return fmt.Errorf("%w: %s", ErrReset, closed.Text)
		}
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}

// Write sends bytes.
func (c *Conn) Write(p []byte) (int, error) {
	c.write.Lock()
	defer c.write.Unlock()
	done := 0
	for len(p) > 0 {
		if c.finished {
			return done, io.ErrClosedPipe
		}
		part := p[:min(len(p), chunk)]
		if err := c.ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			return done, fmt.Errorf("%w: %w", ErrReset, err)
		}
		c.moved.Store(time.Now().UnixNano())
		done += len(part)
		p = p[len(part):]
	}
	return done, nil
}

// CloseWrite tells the other side that no more bytes follow.
func (c *Conn) CloseWrite() error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.finished {
		return nil
	}
	c.finished = true
	return c.ws.WriteMessage(websocket.BinaryMessage, nil)
}

// Ping sends a control frame that the other side answers, so that nothing on the way takes the connection for dead. While a
// Write waits for the other side, it sends none and returns at once: the bytes before it would keep it back.
func (c *Conn) Ping() error {
	if !c.write.TryLock() {
		return nil
	}
	defer c.write.Unlock()
	return c.ws.WriteControl(websocket.PingMessage, nil, time.Time{})
}

// Close ends the connection in order. What was written before arrives.
func (c *Conn) Close() error { return c.close(websocket.CloseNormalClosure, "") }

// Abort resets the connection. The other side gets the reason.
func (c *Conn) Abort(reason string) {
	_ = c.close(websocket.CloseInternalServerErr, reason[:min(len(reason), maxReason)])
}

func (c *Conn) close(code int, reason string) (err error) {
	c.closing.Do(func() {
		_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(closeTime))
		err = c.ws.Close()
	})
	return err
}
