// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// pipe is a connection that has been read in full and drops what is written. It has no methods
// by which io.Copy would join the two directions.
type pipe struct{ r io.Reader }

func (p *pipe) Read(b []byte) (int, error)       { return p.r.Read(b) }
func (p *pipe) Write(b []byte) (int, error)      { return len(b), nil }
func (p *pipe) Close() error                     { return nil }
func (p *pipe) CloseWrite() error                { return nil }
func (p *pipe) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (p *pipe) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

func fuzz(f *testing.F, prefix func([]byte) []byte) {
	password, err := auth.NewPassword(auth.Login{Name: testUser, Password: testPassword})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = prefix(b)
		dialed := 0
		w := &world{names: map[string]netip.AddrPort{"echo.default": netip.MustParseAddrPort("192.0.2.9:7")}, dial: func(context.Context, gateway.Destination) (gateway.Conn, error) {
			dialed++
			return &pipe{r: bytes.NewReader([]byte("answer"))}, nil
		}}
		var rec Record
		s := NewServer(Config{
			Resolver: w, Authorizer: w, Dialer: w, Authenticator: &auth.Authenticator{Password: password}, FailureDelay: time.Nanosecond,
			Audit: func(r Record) { rec = r },
		})
		client := &pipe{r: bytes.NewReader(b)}
		st, _ := s.enter(client)
		s.serve(client, st)
		if rec.Result == "" {
			t.Error("the connection has no result")
		}
		knows := bytes.Contains(b, []byte(testPassword)) || bytes.Contains(bytes.ToLower(b), []byte("basic"))
		if dialed > 0 && (!knows || rec.User != testUser) {
			t.Errorf("dialed without the password: %+v", rec)
		}
		if dialed == 0 && rec.BytesSent+rec.BytesReceived > 0 {
			t.Errorf("bytes without a connection: %+v", rec)
		}
		if (rec.Result == ResultOK) != (dialed == 1) {
			t.Errorf("%d dials, but %+v", dialed, rec)
		}
	})
}
