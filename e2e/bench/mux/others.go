// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/quic-go/quic-go"
	"golang.org/x/net/http2"
)

func tlsConfig() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ServerName: "x",
		InsecureSkipVerify: true, NextProtos: []string{"h2", "x"}, DynamicRecordSizingDisabled: true}, nil //nolint:gosec // both ends are here
}

// tlsPair returns both ends of a TLS connection. wrap sits below TLS.
func tlsPair(wrap func(net.Conn) net.Conn) (near, far *tls.Conn, err error) {
	cfg, err := tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	if wrap != nil {
		a, b = wrap(a), wrap(b)
	}
	near, far = tls.Client(a, cfg), tls.Server(b, cfg)
	done := make(chan error, 1)
	go func() { done <- far.Handshake() }()
	if err := near.Handshake(); err != nil {
		return nil, nil, err
	}
	return near, far, <-done
}

func startYamux(accept func(stream)) (func() (stream, error), func(), error) {
	near, far, err := tlsPair(nil)
	if err != nil {
		return nil, nil, err
	}
	cfg := yamux.DefaultConfig()
	cfg.LogOutput, cfg.MaxStreamWindowSize = io.Discard, streamWindow
	client, err := yamux.Client(near, cfg)
	if err != nil {
		return nil, nil, err
	}
	server, err := yamux.Server(far, cfg)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for {
			s, err := server.Accept()
			if err != nil {
				return
			}
			go accept(s)
		}
	}()
	return func() (stream, error) { return client.Open() }, func() { client.Close(); server.Close() }, nil
}

// h2Stream is one end of an HTTP/2 stream.
type h2Stream struct {
	io.Reader
	write func([]byte) (int, error)
	close func()
}

func (s *h2Stream) Write(p []byte) (int, error) { return s.write(p) }
func (s *h2Stream) Close() error                { s.close(); return nil }

func startHTTP2(accept func(stream)) (func() (stream, error), func(), error) {
	near, far, err := tlsPair(nil)
	if err != nil {
		return nil, nil, err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w)
		_ = flush.Flush()
		accept(&h2Stream{Reader: r.Body, close: func() {}, write: func(p []byte) (int, error) {
			n, err := w.Write(p)
			if err == nil {
				err = flush.Flush()
			}
			return n, err
		}})
	})
	server := &http2.Server{MaxConcurrentStreams: 1000, MaxUploadBufferPerStream: streamWindow, MaxUploadBufferPerConnection: connWindow} //nolint:staticcheck // this implementation is what is measured
	go server.ServeConn(far, &http2.ServeConnOpts{Handler: handler})                                                                      //nolint:staticcheck // this implementation is what is measured
	transport, err := http2.ConfigureTransports(&http.Transport{DisableCompression: true,                                                 //nolint:staticcheck // this implementation is what is measured
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connWindow}})
	if err != nil {
		return nil, nil, err
	}
	client, err := transport.NewClientConn(near) //nolint:staticcheck // this implementation is what is measured
	if err != nil {
		return nil, nil, err
	}
	open := func() (stream, error) {
		pr, pw := io.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x/", pr)
		if err != nil {
			cancel()
			return nil, err
		}
		resp, err := client.RoundTrip(req)
		if err != nil {
			cancel()
			return nil, err
		}
		return &h2Stream{Reader: resp.Body, write: pw.Write, close: func() { pw.Close(); cancel(); resp.Body.Close() }}, nil
	}
	return open, func() { near.Close(); far.Close() }, nil
}

func startQUIC(accept func(stream)) (func() (stream, error), func(), error) {
	cfg, err := tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	qc := &quic.Config{MaxIncomingStreams: 1000, InitialStreamReceiveWindow: streamWindow, MaxStreamReceiveWindow: streamWindow,
		InitialConnectionReceiveWindow: connWindow, MaxConnectionReceiveWindow: connWindow}
	l, err := quic.ListenAddr("127.0.0.1:0", cfg, qc)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		for {
			s, err := c.AcceptStream(context.Background())
			if err != nil {
				return
			}
			go accept(quicStream{s})
		}
	}()
	client, err := quic.DialAddr(context.Background(), l.Addr().String(), cfg, qc)
	if err != nil {
		return nil, nil, err
	}
	open := func() (stream, error) {
		s, err := client.OpenStreamSync(context.Background())
		if err != nil {
			return nil, err
		}
		return quicStream{s}, nil
	}
	return open, func() { _ = client.CloseWithError(0, ""); l.Close() }, nil
}

// quicStream closes both directions.
type quicStream struct{ *quic.Stream }

func (s quicStream) Close() error {
	s.CancelRead(0)
	return s.Stream.Close()
}
