// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/things-go/go-socks5/statute"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// tokenForms are the ways in which clients send a token.
var tokenForms = map[string]func(token string) string{
	"bearer": func(token string) string {
		return "CONNECT web.default:7 HTTP/1.1\r\nProxy-Authorization: Bearer " + token + "\r\n\r\n"
	},
	"password": func(token string) string {
		return "CONNECT web.default:7 HTTP/1.1\r\n" + basic("token:"+token) + "\r\n"
	},
	"password of SOCKS5": func(token string) string {
		return "\x05\x01\x02" + string(statute.NewUserPassRequest(1, []byte("token"), []byte(token)).Bytes())
	},
}

// TestTokenReviews: 8 tokens of one client are in review at a time, in whatever form they are sent.
// The next one gets the answer that the proxy is busy without a wait and makes no review; a client with another
// address is reviewed next to them. When reviews end, the client is served again.
func TestTokenReviews(t *testing.T) {
	t.Parallel()
	for name, form := range tokenForms {
		t.Run(name, func(t *testing.T) {
			reviewed, release := make(chan string, 100), make(chan struct{})
			metrics := NewMetrics(nil)
			w := newWorld(t, func(_ *world, c *Config) {
				c.Metrics = metrics
				c.Authenticator.Tokens = authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
					reviewed <- token
					select {
					case <-release:
					case <-ctx.Done():
					}
					return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
				})
			})
			w.name("web.default", serveTCP(t, echo))
			send := func(from, token string) net.Conn {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				nc, err := d.Dial("tcp", w.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = nc.Close() })
				_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
				_, _ = io.WriteString(nc, form(token))
				return nc
			}
			wait := func() {
				select {
				case <-reviewed:
				case <-time.After(20 * time.Second):
					t.Fatal("a token is not reviewed")
				}
			}
			var first net.Conn
			for i := range 8 {
				first = send("127.0.0.1", fmt.Sprintf("token-%d", i))
				wait()
			}
			refused := send("127.0.0.1", "one-too-many")
			if name == "password of SOCKS5" {
				if got := readFull(t, refused, make([]byte, 4)); got != "\x05\x02\x01\x01" {
					t.Errorf("the ninth is answered %q", got)
				}
			} else if line, err := bufio.NewReader(refused).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 503 ") {
				t.Errorf("the ninth is answered %q, %v", line, err)
			}
			if r := w.ended(t, 1)[0]; r.Result != "busy" {
				t.Errorf("the ninth: %+v", r)
			}
			if n := testutil.ToFloat64(metrics.rejected); n != 1 {
				t.Errorf("the metric counts %v connections above the limit, want 1", n)
			}
			send("127.0.0.2", "of-another-client")
			wait()
			close(release)
			if _, err := first.Read(make([]byte, 1)); err != nil {
				t.Errorf("one of the eight: %v", err)
			}
			if n := len(reviewed); n != 0 {
				t.Errorf("%d reviews too many", n)
			}
			again := send("127.0.0.1", "afterwards")
			wait()
			if _, err := again.Read(make([]byte, 1)); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestTokenReviewFails: a client whose token cannot be reviewed learns that the proxy's path is down, and nothing about the API
// server. The log has the cause.
func TestTokenReviewFails(t *testing.T) {
	t.Parallel()
	down := errors.New(`Post "https://10.9.8.7:6443/apis/authentication.k8s.io/v1/tokenreviews": dial tcp 10.9.8.7:6443: connect: connection refused`)
	for name, form := range tokenForms {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(_ *world, c *Config) {
				c.Authenticator.Tokens = authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, down })
			})
			nc, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(nc, form("a-token"))
			got, err := io.ReadAll(nc)
			if err != nil || strings.Contains(string(got), "10.9.8.7") {
				t.Errorf("the answer is %q, %v", got, err)
			}
			if name != "password of SOCKS5" && !strings.HasPrefix(string(got), "HTTP/1.1 503 Service Unavailable (path-down)\r\n") {
				t.Errorf("the answer is %q", got)
			}
			if r := w.ended(t, 1)[0]; r.Result != "path-down" || !strings.Contains(r.Error, "10.9.8.7") {
				t.Errorf("the log has %+v", r)
			}
		})
	}
}
