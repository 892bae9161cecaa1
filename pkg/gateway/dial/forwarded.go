// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	// chunkSize is the most that goes into one frame.
	chunkSize = 32 << 10
	// sendBuffer holds what waits for the API server. It is small: what is in it has left
	// the client, but may never arrive.
	sendBuffer = 64 << 10
	// closeGrace is how long a closed connection may take to send what it still holds.
	closeGrace = 5 * time.Second
	// errorGrace is how long the end of the data waits for the text that explains it. They
	// come on two streams, whose frames may be handled out of order.
	errorGrace = 2 * time.Second
	// maxDropped is how many bytes a destination may send to a client that has gone, before its upstream is given up.
	maxDropped = 1 << 20
)

// forwarded is one connection to a port of a Pod: a data stream and an error stream.
type forwarded struct {
	up           *upstream
	to           gateway.Destination
	data, errors *spdystream.Stream
	in, out      *buffer
	first        chan struct{} // closed with the first byte of the destination, or the end
	sent         chan struct{} // closed when nothing more is sent
	ended        chan struct{} // closed when nothing more is received
	flooded      chan struct{} // closed when too much is received after Close
	failed       chan struct{} // closed when the error stream has ended
	failure      error         // why, to be read after failed is closed
	closed       sync.Once
}

// open makes the two streams in a place that reserve took, and waits until the destination has accepted, as far as that
// can be seen: the protocol reports failures but no success. What it reports later is
// returned by Read.
func (u *upstream) open(ctx context.Context, to gateway.Destination, port uint16) (*forwarded, error) {
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, strconv.FormatInt(u.requests.Add(1), 10))
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := u.stream(ctx, header)
	if err != nil {
		u.unreserve()
		return nil, err
	}
	_ = failures.Close() // nothing is sent on it
	header = header.Clone()
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	began := time.Now()
	data, err := u.stream(ctx, header)
	if err != nil {
		if errors.Is(err, spdystream.ErrReset) {
			err = whyReset(ctx, failures, to, err)
		}
		_ = failures.Reset()
		u.unreserve()
		return nil, err
	}
	f := &forwarded{
		up: u, to: to, data: data, errors: failures,
		in: newBuffer(u.o.ReceiveBuffer), out: newBuffer(sendBuffer),
		first: make(chan struct{}), sent: make(chan struct{}), failed: make(chan struct{}),
		ended: make(chan struct{}), flooded: make(chan struct{}),
	}
	u.add(f)
	u.goroutines.Go(f.readErrors)
	u.goroutines.Go(f.receive)
	u.goroutines.Go(f.send)
	if err := f.settle(ctx, time.Since(began)); err != nil {
		f.abort(err)
		return nil, err
	}
	return f, nil
}

// whyReset returns the text of the error stream. A node that fails at once may reset the data
// stream before it has replied to it.
func whyReset(ctx context.Context, failures *spdystream.Stream, to gateway.Destination, err error) error {
	text := make(chan []byte, 1)
	go func() { // ends with the stream, which the caller resets
		all, _ := io.ReadAll(io.LimitReader(failures, 4<<10))
		text <- all
	}()
	select {
	case all := <-text:
		if len(all) > 0 {
			return podError(to, string(all))
		}
	case <-time.After(errorGrace):
	case <-ctx.Done():
	}
	return err
}

// settle waits for a failure, for the first byte, or until failures would have been reported.
// A node connects to a port of one of its Pods within milliseconds, and the failure takes as
// long as the reply to a stream.
func (f *forwarded) settle(ctx context.Context, reply time.Duration) error {
	timer := time.NewTimer(f.up.o.Settle + reply)
	defer timer.Stop()
	select {
	case <-f.failed:
		return f.failure
	case <-f.first:
		select {
		case <-f.failed:
			return f.failure
		default:
			return nil
		}
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readErrors reads the error stream: a text, or its end when the connection is over.
func (f *forwarded) readErrors() {
	text, err := io.ReadAll(io.LimitReader(f.errors, 4<<10))
	switch {
	case len(text) > 0:
		f.failure = podError(f.to, string(text))
	case f.up.lost():
		f.failure = f.up.lostError()
	case err != nil:
		f.failure = err
	}
	close(f.failed)
	f.out.discard(errors.Join(io.ErrClosedPipe, f.failure)) // the other side reads no more
}

// receive moves bytes from the destination into the buffer.
func (f *forwarded) receive() {
	firstByte := sync.OnceFunc(func() { close(f.first) })
	defer firstByte()
	flooded, dropped := sync.OnceFunc(func() { close(f.flooded) }), 0
	for {
		chunk, err := f.data.ReadData()
		if err != nil {
			break
		}
		stalled := f.in.full()
		if stalled {
			f.up.stalled(f, true)
		}
		err = f.in.take(chunk)
		firstByte()
		if stalled {
			f.up.stalled(f, false)
		}
		if err != nil { // after Close, what comes is dropped: it must not hold up other connections
			if dropped += len(chunk); dropped > maxDropped {
				flooded()
			}
		}
	}
	close(f.ended)
	select {
	case <-f.failed:
	case <-time.After(errorGrace):
	}
	end := error(nil)
	select {
	case <-f.failed:
		end = f.failure
	default:
		if f.up.lost() {
			end = f.up.lostError()
		}
	}
	f.in.finish(end)
}

// send moves bytes from the buffer to the destination.
func (f *forwarded) send() {
	defer close(f.sent)
	part := make([]byte, chunkSize)
	for {
		n, err := f.out.Read(part)
		if n > 0 {
			if _, err := f.data.Write(part[:n]); err != nil {
				f.out.discard(f.up.lostError())
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = f.data.Close()
			}
			return
		}
	}
}

// Read reads what the destination sends. It fails if the connection broke, which a plain
// end does not tell.
func (f *forwarded) Read(p []byte) (int, error) { return f.in.Read(p) }

// Write sends to the destination.
func (f *forwarded) Write(p []byte) (int, error) { return f.out.Write(p) }

// CloseWrite ends what is sent. The protocol keeps the other direction open; how long the
// container runtime does is up to it.
func (f *forwarded) CloseWrite() error {
	f.out.finish(nil)
	return nil
}

// Close ends the connection. What was written before is sent, for a few seconds. If the destination does not end its direction
// then, the upstream ends, too.
func (f *forwarded) Close() error {
	f.closed.Do(func() {
		f.in.discard(net.ErrClosed)
		f.out.finish(nil)
		f.up.goroutines.Go(func() {
			select {
			case <-f.sent:
			case <-time.After(closeGrace):
			case <-f.up.down:
			}
			if !f.ends() {
				f.up.retire()
			}
			f.release()
		})
	})
	return nil
}

// ends waits for the end of the destination's direction, and tells whether it came in time.
func (f *forwarded) ends() bool {
	timer := time.NewTimer(f.up.o.Linger)
	defer timer.Stop()
	select {
	case <-f.ended:
		return true
	case <-f.up.down:
		return true
	case <-f.flooded:
	case <-timer.C:
	}
	return false
}

// abort ends the connection with an error at once.
func (f *forwarded) abort(err error) {
	f.closed.Do(func() {
		f.in.discard(err)
		f.out.discard(err)
		f.release()
	})
}

// fail lets the client have what has arrived, and then an error.
func (f *forwarded) fail(err error) {
	f.in.finish(err)
	f.out.discard(err)
	_ = f.data.Reset()
	_ = f.errors.Reset()
}

func (f *forwarded) release() {
	_ = f.data.Reset()
	_ = f.errors.Reset()
	f.up.remove(f)
}

// LocalAddr returns the local address of the connection to the API server.
func (f *forwarded) LocalAddr() net.Addr { return f.up.local }

// RemoteAddr returns the address of the destination.
func (f *forwarded) RemoteAddr() net.Addr { return destinationAddr(f.to) }

// SetDeadline sets both deadlines.
func (f *forwarded) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

// SetReadDeadline bounds Read.
func (f *forwarded) SetReadDeadline(t time.Time) error {
	f.in.setDeadline(&f.in.readBy, t)
	return nil
}

// SetWriteDeadline bounds Write.
func (f *forwarded) SetWriteDeadline(t time.Time) error {
	f.out.setDeadline(&f.out.writeBy, t)
	return nil
}

// podError gives a reason to the text of a node on why it cannot connect.
func podError(to gateway.Destination, text string) error {
	text = strings.Join(strings.Fields(text), " ")
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(strings.ToLower(text), p) {
				return true
			}
		}
		return false
	}
	reason, hint := gateway.ReasonInternal, "see the kubelet's log on the Pod's node"
	switch {
	case has("connection refused"):
		reason = gateway.ReasonRefused
		hint = "check that a container listens on this port, on localhost or on all addresses: port-forwarding connects to the Pod's loopback address"
	case has("timed out", "timeout", "deadline exceeded"):
		reason, hint = gateway.ReasonTimeout, "check that the Pod answers"
	case has("no such pod", "not found", "could not find", "does not exist", "no such container"):
		reason, hint = gateway.ReasonNotFound, "the Pod is gone or is being replaced: try again"
	case has("not running", "no route to host", "network is unreachable", "network namespace"):
		reason, hint = gateway.ReasonHostUnreachable, "the Pod does not run: see kubectl describe pod"
	}
	return gateway.Errorf(reason, hint, "the node of Pod %s cannot connect to its port: %w", to.Pod, fmt.Errorf("%.500s", text))
}
