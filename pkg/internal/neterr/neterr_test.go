// SPDX-License-Identifier: Apache-2.0

package neterr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSteady proves that the errors of two connections to one place, and of two questions to one DNS server, have the same text, which says the
// rest, and that the error within can be found.
func TestSteady(t *testing.T) {
	resets, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resets.Close() })
	go func() {
		for {
			c, err := resets.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for name, tc := range map[string]struct {
		fail  func() error
		parts []string
	}{
		"reset": {func() error {
			resp, err := client.Get("http://" + resets.Addr().String())
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}, []string{"Get \"http://", "read tcp " + resets.Addr().String() + ": "}},
		"no answer of DNS": {func() error {
			r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
				if err == nil {
					err = c.SetDeadline(time.Now().Add(-time.Second))
				}
				return shortLived{c}, err
			}}
			_, err := r.LookupHost(t.Context(), "k.example.")
			return fmt.Errorf("look up: %w", err)
		}, []string{"look up: lookup k.example.", "udp " + silent.LocalAddr().String() + ": i/o timeout"}},
	} {
		first, second := tc.fail(), tc.fail()
		for tries := 0; tries < 10 && first.Error() == second.Error(); tries++ { // by chance
			second = tc.fail()
		}
		if first.Error() == second.Error() || !strings.Contains(first.Error(), "->") {
			t.Fatalf("%s: the texts do not differ by themselves: %v", name, first)
		}
		one, two := Steady(first), Steady(second)
		if one.Error() != two.Error() || !errors.Is(one, first) {
			t.Errorf("%s: %v and %v", name, one, two)
		}
		for _, part := range tc.parts {
			if !strings.Contains(one.Error(), part) {
				t.Errorf("%s: %q lacks %q", name, one, part)
			}
		}
	}
}

// shortLived is a connection whose deadline its user does not move.
type shortLived struct{ net.Conn }

func (shortLived) SetDeadline(time.Time) error { return nil }

// TestText proves which parts of a text go.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"read udp 10.244.0.5:36412->10.96.0.10:53: i/o timeout":                                                                 "read udp 10.96.0.10:53: i/o timeout",
		"write tcp4 127.0.0.1:1->127.0.0.1:2: broken pipe; read tcp [::1]:3->[fe80::1%e]:4: x":                                  "write tcp4 127.0.0.1:2: broken pipe; read tcp [fe80::1%e]:4: x",
		`failed calling webhook "a": Post "https://a.b.svc": read tcp 10.0.0.1:5->10.0.0.2:443: read: connection reset by peer`: `failed calling webhook "a": Post "https://a.b.svc": read tcp 10.0.0.2:443: read: connection reset by peer`,
		"dial tcp 10.0.0.1:443: connect: connection refused":                                                                    "dial tcp 10.0.0.1:443: connect: connection refused",
		"field a->b of the tcp options":                                                                                         "field a->b of the tcp options",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if err := Steady(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}
