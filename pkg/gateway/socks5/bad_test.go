// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/things-go/go-socks5/statute"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// greetAndLogin is what a client sends up to its request.
func greetAndLogin() string {
	return "\x05\x01\x02" + string(statute.NewUserPassRequest(1, []byte(testUser), []byte(testPassword)).Bytes())
}

// loggedIn is the answer to greetAndLogin.
const loggedIn = "\x05\x02\x01\x00"

func socksRequest(command byte, host string, port uint16) string {
	return "\x05" + string(command) + "\x00\x03" + string([]byte{byte(len(host))}) + host + string([]byte{byte(port >> 8), byte(port)})
}

func reply(code byte) string { return string([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0}) }

func basic(login string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(login)) + "\r\n"
}

func right() string { return basic(testUser + ":" + testPassword) }

// sentAhead is what a client sends before it has a reply. A client that ends its direction instead may be taken for one that is gone.
const sentAhead = "ahead"

// talk sends the text, ends its direction and returns everything that comes back.
func talk(t *testing.T, addr, text string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Errorf("%.40q: the answer %q ends with %v", text, got, err)
	}
	return string(got)
}

// TestBadInput: each input that is wrong gets the reply that the protocol has for it and the
// connection is closed; a connection next to it is not disturbed; nothing is dialed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("echo.default", serveTCP(t, echo))
	beside := mustConnect(t, w, "echo.default")
	for _, c := range []struct {
		name, send, want string // want is the whole answer, or its beginning with "..."
		result           gateway.Reason
	}{
		{"nothing", "", "", ReasonClientGone},
		{"half a greeting", "\x05\x02\x00", "", ReasonClientGone},
		{"no methods", "\x05\x00", "\x05\xff", ReasonUnauthenticated},
		{"unknown methods", "\x05\x02\x01\x80", "\x05\xff", ReasonUnauthenticated},
		{"no authentication", "\x05\x01\x00", "\x05\xff", ReasonUnauthenticated},
		{"largest greeting", "\x05\xff" + strings.Repeat("\x80", 255), "\x05\xff", ReasonUnauthenticated},
		{"largest greeting with the method at its end", "\x05\xff" + strings.Repeat("\x80", 254) + "\x02\x01\x05alice\x05wrong", "\x05\x02\x01\x01", ReasonUnauthenticated},
		{"greeting with more than it announces", "\x05\x01\x02" + strings.Repeat("\x02", 4096), "\x05\x02\x01\x01", ReasonMalformed},
		{"SOCKS4", "\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", ReasonMalformed},
		{"TLS", "\x16\x03\x01\x02\x00", "", ReasonMalformed},
		{"noise", "\x00\xff\x00", "", ReasonMalformed},
		{"version of the authentication", "\x05\x01\x02\x05\x01a\x01b", "\x05\x02\x01\x01", ReasonMalformed},
		{"half an authentication", "\x05\x01\x02\x01\x05al", "\x05\x02", ReasonClientGone},
		{"wrong password", "\x05\x01\x02\x01\x05alice\x05wrong", "\x05\x02\x01\x01", ReasonUnauthenticated},
		{"empty name and password", "\x05\x01\x02\x01\x00\x00", "\x05\x02\x01\x01", ReasonUnauthenticated},
		{"longest name and password", "\x05\x01\x02\x01\xff" + strings.Repeat("a", 255) + "\xff" + strings.Repeat("b", 255), "\x05\x02\x01\x01", ReasonUnauthenticated},
		{"pipelined wrong password", "\x05\x01\x02\x01\x05alice\x05wrong" + socksRequest(1, "echo.default", 7), "\x05\x02\x01\x01", ReasonUnauthenticated},
		{"half a request", greetAndLogin() + "\x05\x01\x00\x03\x20abc", loggedIn + reply(statute.RepServerFailure), ReasonClientGone},
		{"no request", greetAndLogin(), loggedIn + reply(statute.RepServerFailure), ReasonClientGone},
		{"version of the request", greetAndLogin() + "\x04" + socksRequest(1, "echo.default", 7)[1:], loggedIn + reply(statute.RepServerFailure), ReasonMalformed},
		{"BIND", greetAndLogin() + socksRequest(2, "echo.default", 7), loggedIn + reply(statute.RepCommandNotSupported), gateway.ReasonUnsupported},
		{"UDP ASSOCIATE", greetAndLogin() + socksRequest(3, "echo.default", 7), loggedIn + reply(statute.RepCommandNotSupported), gateway.ReasonUnsupported},
		{"command 0", greetAndLogin() + socksRequest(0, "echo.default", 7), loggedIn + reply(statute.RepCommandNotSupported), gateway.ReasonUnsupported},
		{"type of address", greetAndLogin() + "\x05\x01\x00\x02\x00\x00\x00\x00\x00\x50", loggedIn + reply(statute.RepAddrTypeNotSupported), ReasonMalformed},
		{"port 0", greetAndLogin() + socksRequest(1, "echo.default", 0), loggedIn + reply(statute.RepServerFailure), ReasonMalformed},
		{"empty name", greetAndLogin() + socksRequest(1, "", 7), loggedIn + reply(statute.RepServerFailure), ReasonMalformed},
		{"name with NUL", greetAndLogin() + socksRequest(1, "echo.default\x00.evil", 7), loggedIn + reply(statute.RepServerFailure), ReasonMalformed},
		{"name with CRLF", greetAndLogin() + socksRequest(1, "a\r\nX: y", 7), loggedIn + reply(statute.RepServerFailure), ReasonMalformed},
		{"longest name", greetAndLogin() + socksRequest(1, strings.Repeat("a", 255), 7) + sentAhead, loggedIn + reply(statute.RepHostUnreachable), gateway.ReasonNotFound},

		{"half a head", "CONNECT echo.default:7 HTTP/1.1\r\n", "...HTTP/1.1 400", ReasonClientGone},
		{"no credentials", "CONNECT echo.default:7 HTTP/1.1\r\n\r\n", "...HTTP/1.1 407", ReasonUnauthenticated},
		{"wrong credentials", "CONNECT echo.default:7 HTTP/1.1\r\n" + basic("alice:wrong") + "\r\n", "...HTTP/1.1 407", ReasonUnauthenticated},
		{"unreadable credentials", "CONNECT echo.default:7 HTTP/1.1\r\nProxy-Authorization: Basic !\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"unknown scheme", "CONNECT echo.default:7 HTTP/1.1\r\nProxy-Authorization: Digest x\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"two credentials", "CONNECT echo.default:7 HTTP/1.1\r\n" + basic("a:b") + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"bearer token where none is accepted", "CONNECT echo.default:7 HTTP/1.1\r\nProxy-Authorization: Bearer x\r\n\r\n", "...HTTP/1.1 407", ReasonUnauthenticated},
		{"absolute form", "GET http://echo.default/ HTTP/1.1\r\nHost: echo.default\r\n" + right() + "\r\n", "...HTTP/1.1 405", gateway.ReasonUnsupported},
		{"origin form", "GET / HTTP/1.1\r\nHost: x\r\n" + right() + "\r\n", "...HTTP/1.1 405", gateway.ReasonUnsupported},
		{"no port", "CONNECT echo.default HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"port 0 of CONNECT", "CONNECT echo.default:0 HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"large port", "CONNECT echo.default:65536 HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"name of a port", "CONNECT echo.default:http HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"userinfo", "CONNECT x@echo.default:7 HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"path", "CONNECT echo.default:7/x HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"256 bytes", "CONNECT " + strings.Repeat("a", 256) + ":7 HTTP/1.1\r\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"bare LF", "CONNECT echo.default:7 HTTP/1.1\n" + right() + "\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"folded line", "CONNECT echo.default:7 HTTP/1.1\r\n" + right() + " x: y\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"space before the colon", "CONNECT echo.default:7 HTTP/1.1\r\n" + right() + "X : y\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"body", "CONNECT echo.default:7 HTTP/1.1\r\n" + right() + "Content-Length: 5\r\n\r\nhello", "...HTTP/1.1 400", ReasonMalformed},
		{"chunks", "CONNECT echo.default:7 HTTP/1.1\r\n" + right() + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "...HTTP/1.1 400", ReasonMalformed},
		{"large head", "CONNECT echo.default:7 HTTP/1.1\r\nX: " + strings.Repeat("a", maxHead) + "\r\n\r\n", "...HTTP/1.1 431", ReasonMalformed},
		{"long line that never ends", "CONNECT " + strings.Repeat("a", 3*maxHead), "...HTTP/1.1 431", ReasonMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(w.ended(t, 0))
			got := talk(t, w.addr, c.send)
			if prefix, ok := strings.CutPrefix(c.want, "..."); ok && !strings.HasPrefix(got, prefix) || !ok && got != c.want {
				t.Errorf("answer %q, want %q", got, c.want)
			}
			r := w.ended(t, before+1)[before]
			if r.Result != string(c.result) {
				t.Errorf("result %q (%s), want %q", r.Result, r.Error, c.result)
			}
			if _, err := io.WriteString(beside, "still there"); err != nil {
				t.Fatal(err)
			}
			if b := make([]byte, 11); readFull(t, beside, b) != "still there" {
				t.Errorf("beside: %q", b)
			}
		})
	}
	if got := w.hosts(); !slices.Equal(got, []string{"echo.default", strings.Repeat("a", 255)}) {
		t.Errorf("the resolver was asked for %.80q", got)
	}
}

func readFull(t *testing.T, r io.Reader, b []byte) string {
	t.Helper()
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mustConnect opens a connection by SOCKS5 in one packet.
func mustConnect(t *testing.T, w *world, host string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(nc, greetAndLogin()+socksRequest(1, host, 7)); err != nil {
		t.Fatal(err)
	}
	want := loggedIn + reply(statute.RepSuccess)
	if got := readFull(t, nc, make([]byte, len(want))); got != want {
		t.Fatalf("%q", got)
	}
	return nc.(*net.TCPConn)
}

// TestReasons: each reason of package gateway has a SOCKS5 code and an HTTP status, and
// both reach the client.
func TestReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for reason, a := range answers {
		if reason == ReasonClientGone {
			continue // there is no client to tell
		}
		fail := gateway.Errorf(reason, "", "as the test wants")
		w.name("fails.default", serveTCP(t, echo))
		w.setDial(fail)
		if got, want := talk(t, w.addr, greetAndLogin()+socksRequest(1, "fails.default", 7)+sentAhead), loggedIn+reply(a.reply); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
		got := talk(t, w.addr, "CONNECT fails.default:7 HTTP/1.1\r\n"+right()+"\r\n"+sentAhead)
		if want := fmt.Sprintf("HTTP/1.1 %d ", a.status); !strings.HasPrefix(got, want) || !strings.Contains(got, "("+string(reason)+")") || !strings.HasSuffix(got, "as the test wants\n") {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if a := answerTo("some other reason"); a != answers[gateway.ReasonInternal] {
		t.Errorf("%+v", a)
	}
}

// FuzzSOCKS5 and FuzzConnect: no bytes crash the server or keep a connection, whatever
// it answers; nothing is dialed without the password.
func FuzzSOCKS5(f *testing.F) {
	f.Add([]byte("\x05\x01\x02\x01\x05alice\x05wrong" + socksRequest(1, "echo.default", 7)))
	f.Add([]byte(greetAndLogin() + "\x05\x01\x00\x04" + string(make([]byte, 18))))
	f.Add([]byte(greetAndLogin() + socksRequest(3, "x", 1)))
	fuzz(f, func(b []byte) []byte {
		return append([]byte{socksVersion}, bytes.TrimPrefix(b, []byte{socksVersion})...)
	})
}

func FuzzConnect(f *testing.F) {
	f.Add([]byte("CONNECT echo.default:7 HTTP/1.1\r\n" + right() + "\r\nahead"))
	f.Add([]byte("GET http://x/ HTTP/1.0\r\nProxy-Authorization: Bearer x\r\n\r\n"))
	f.Add([]byte("CONNECT [::1]:7 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"))
	fuzz(f, func(b []byte) []byte { return append([]byte("C"), bytes.TrimPrefix(b, []byte("C"))...) })
}
