// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"
)

// strict is TLS that takes only a closing alert for an end. To crypto/tls the end of the
// connection below is one, too, where that comes between two records.
type strict struct {
	*tls.Conn
	below *watched
}

// watched remembers that it has been read to its end.
type watched struct {
	net.Conn
	ended atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.ended.Store(true)
	}
	return n, err
}

func strictly(c net.Conn, cfg *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) *strict {
	w := &watched{Conn: c}
	return &strict{side(w, cfg), w}
}

func (s *strict) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) && s.below.ended.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// ConnectStrictly is ConnectTLS for clients that take only TLS's closing alert for an
// end.
func ConnectStrictly(proxy string, cfg *tls.Config) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
		if err != nil {
			return nil, err
		}
		defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
		return kasdial.Handshake(strictly(nc, cfg, tls.Client), address)
	}
}
