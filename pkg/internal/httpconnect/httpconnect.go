// SPDX-License-Identifier: Apache-2.0

// Package httpconnect is the client side of HTTP CONNECT on a connection that is there already, and how servers refuse it.
package httpconnect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxHead bounds the server's answer.
const maxHead = 64 << 10

// RefusedError is an answer other than 200.
type RefusedError struct {
	// Code is the status, and Status the whole line, such as "403 denied: ...".
	Code   int
	Status string
}

// Error returns the status line.
func (e *RefusedError) Error() string { return fmt.Sprintf("the server answers %.500s", e.Status) }

// Conn is a connection that a server has opened.
type Conn struct {
	net.Conn
	reader *bufio.Reader // holds what came with the server's answer
}

// Read reads, first what came with the server's answer.
func (c *Conn) Read(p []byte) (int, error) {
	if c.reader.Buffered() > 0 {
		return c.reader.Read(p)
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection to the server.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Ask asks for a connection to an address, until ctx ends. The caller closes nc if it fails. Errors are those of ctx, of
// type *RefusedError, or those of nc.
func Ask(ctx context.Context, nc net.Conn, address string, header http.Header) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c, err := ask(nc, address, header)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return c, err
}

func ask(nc net.Conn, address string, header http.Header) (*Conn, error) {
	request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n", address, address)
	for name, values := range header {
		for _, v := range values {
			request += name + ": " + v + "\r\n"
		}
	}
	if _, err := io.WriteString(nc, request+"\r\n"); err != nil {
		return nil, err
	}
	head := &capped{Reader: nc, left: maxHead}
	reader := bufio.NewReader(head)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // the connection follows the head
	if err != nil {
		return nil, fmt.Errorf("no answer to CONNECT: %w", err)
	}
	head.left = -1
	if resp.StatusCode != http.StatusOK {
		return nil, &RefusedError{resp.StatusCode, resp.Status}
	}
	return &Conn{nc, reader}, nil
}

// capped fails when too much is read, until left is negative.
type capped struct {
	io.Reader
	left int
}

// Read reads.
func (c *capped) Read(p []byte) (int, error) {
	if c.left < 0 {
		return c.Reader.Read(p)
	}
	if c.left == 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := c.Reader.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
