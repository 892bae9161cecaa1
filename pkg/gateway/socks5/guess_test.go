// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestGuesses: a client that sends wrong passwords and does not wait for the answers gets none to further ones, not
// even to the right one, by both protocols. Wrong tokens do not count, and another client is not delayed.
func TestGuesses(t *testing.T) {
	t.Parallel()
	var metrics *Metrics
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.FailureDelay, cfg.Failures, cfg.Metrics = time.Hour, gateway.NewFailures(time.Hour), NewMetrics(nil)
		metrics = cfg.Metrics
		cfg.Authenticator.Tokens = authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
			return nil, false, nil
		})
	})
	t.Cleanup(w.cancel) // it ends the delays
	w.name("echo.default", serveTCP(t, echo))
	open := func(ip, text string) net.Conn {
		nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(nc, text)
		return nc
	}
	status := func(ip, header string) string {
		nc := open(ip, "CONNECT echo.default:7 HTTP/1.1\r\n"+header+"\r\n")
		defer nc.Close()
		line, err := bufio.NewReader(nc).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	wrong := func(n int, text string) {
		before := testutil.ToFloat64(metrics.authFailures.WithLabelValues("http"))
		for i := range n {
			_ = open("127.0.0.1", text).Close()
			daemontest.Eventually(t, time.Minute, func() error {
				if testutil.ToFloat64(metrics.authFailures.WithLabelValues("http")) <= before+float64(i) {
					return fmt.Errorf("failure %d is not counted: %+v", i+1, w.ended(t, 0))
				}
				return nil
			})
		}
	}
	const ok, busy = "HTTP/1.1 200 ", "HTTP/1.1 503 "
	wrong(maxChecks, "CONNECT x:1 HTTP/1.1\r\n"+basic("token:expired")+"\r\n")
	wrong(gateway.MaxFailures-1, "CONNECT x:1 HTTP/1.1\r\n"+basic("alice:wrong")+"\r\n")
	if got := status("127.0.0.1", right()); !strings.HasPrefix(got, ok) {
		t.Errorf("within the limit: %s", got)
	}
	wrong(1, "CONNECT x:1 HTTP/1.1\r\n"+basic("alice:wrong")+"\r\n")
	for _, header := range []string{right(), basic("alice:wrong")} {
		if got := status("127.0.0.1", header); !strings.HasPrefix(got, busy) {
			t.Errorf("%q of the guesser: %s", header, got)
		}
	}
	if got := talk(t, w.addr, greetAndLogin()); got != "\x05\x02\x01\x01" {
		t.Errorf("the guesser by SOCKS5: %q", got)
	}
	if got := status("127.0.0.2", right()); !strings.HasPrefix(got, ok) {
		t.Errorf("another client: %s", got)
	}
	if n := testutil.ToFloat64(metrics.rejected); n != 0 { // the alert SOCKS5Full would ask to raise limits
		t.Errorf("the metric counts %v connections above limits", n)
	}
}
