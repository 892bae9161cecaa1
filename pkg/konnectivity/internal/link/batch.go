// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// batchConn is the connection below TLS. crypto/tls makes one system call per record.
// batchConn collects the records of one batch into one write, and reads ahead, so that
// one read returns several records. It holds no memory while it is idle.
type batchConn struct {
	net.Conn
	in   *netx.Conn
	to   *netx.Writer
	gate Gate // may be nil
	// reads counts reads that returned data, for life.
	reads atomic.Int64
	// over is set when reading has failed or reached the end. If TLS reports an end
	// before that, the peer has announced it. Only the goroutine that reads uses over.
	over bool

	headMu sync.Mutex
	head   []*buffer.Chunk // read ahead, not yet handed to TLS
	closed bool

	mu       sync.Mutex
	batching bool
	out      []byte
}

// batchFlush is the number of collected bytes that are written before the batch ends:
// sixteen records and their overhead.
const batchFlush = 16 * (16384 + 22)

var batchPool = sync.Pool{New: func() any {
	b := make([]byte, 0, batchFlush+16384+64)
	return &b
}}

// Gate is notified when the goroutine that reads and writes a connection waits for its
// peer. It can delay that goroutine afterwards.
type Gate interface {
	// Waits is called before a read that may block, and Answers before a write.
	Waits()
	Answers()
	// Computes is called when data was read. The read returns its error.
	Computes() error
}

// NewBatchConn wraps the connection below TLS. gate may be nil.
func NewBatchConn(nc net.Conn, gate Gate) net.Conn {
	return &batchConn{Conn: nc, in: netx.New(nc), to: netx.NewWriter(nc), gate: gate}
}

// NetConn returns the wrapped connection.
func (b *batchConn) NetConn() net.Conn { return b.Conn }

func (b *batchConn) Read(p []byte) (int, error) {
	if n := b.take(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	if b.gate != nil {
		b.gate.Waits()
	}
	chunks, err := b.in.ReadChunks(netx.MaxRead)
	if err != nil {
		b.over = true
		return 0, err
	}
	b.reads.Add(1)
	if b.gate != nil {
		if err := b.gate.Computes(); err != nil {
			buffer.Release(chunks)
			return 0, err
		}
	}
	if !b.put(chunks) {
		return 0, net.ErrClosed
	}
	return b.take(p), nil
}

// put stores what was read ahead. It returns false when the connection is closed.
func (b *batchConn) put(chunks []*buffer.Chunk) bool {
	b.headMu.Lock()
	defer b.headMu.Unlock()
	if b.closed {
		buffer.Release(chunks)
		return false
	}
	b.head = chunks
	return true
}

// take returns what was read ahead.
func (b *batchConn) take(p []byte) int {
	b.headMu.Lock()
	defer b.headMu.Unlock()
	n := 0
	for n < len(p) && len(b.head) > 0 {
		c := b.head[0]
		m := copy(p[n:], c.Bytes())
		n += m
		if c.Consume(m); c.Len() == 0 {
			c.Release()
			b.head = b.head[1:]
		}
	}
	return n
}

// Close implements net.Conn. It also releases what was read ahead.
func (b *batchConn) Close() error {
	err := b.Conn.Close()
	b.headMu.Lock()
	defer b.headMu.Unlock()
	b.closed = true
	buffer.Release(b.head)
	b.head = nil
	return err
}

func (b *batchConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.batching { // as in the handshake
		if b.gate != nil {
			b.gate.Answers()
		}
		return b.Conn.Write(p)
	}
	b.out = append(b.out, p...)
	if len(b.out) >= batchFlush {
		if err := b.flushLocked(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// begin starts a batch.
func (b *batchConn) begin() {
	b.mu.Lock()
	b.batching = true
	b.out = (*batchPool.Get().(*[]byte))[:0]
	b.mu.Unlock()
}

// end writes the collected records.
func (b *batchConn) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.flushLocked()
	b.batching = false
	out := b.out
	b.out = nil
	batchPool.Put(&out)
	return err
}

func (b *batchConn) flushLocked() error {
	if len(b.out) == 0 {
		return nil
	}
	_, err := b.to.Write(b.out)
	b.out = b.out[:0]
	return err
}
