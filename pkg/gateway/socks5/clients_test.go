// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// web is a web server that the world knows as web.default.
func web(t *testing.T, w *world) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "hello %s %d", r.Host, len(body))
	}))
	t.Cleanup(srv.Close)
	w.name("web.default", netip.MustParseAddrPort(srv.Listener.Addr().String()))
	return srv
}

func curl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path := daemontest.Program(t, "curl")
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, append([]string{"-sS", "--max-time", "20", "--noproxy", ""}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = []string{"PATH=/usr/bin:/bin"} // no proxy of this machine's
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

// TestCurl: curl gets a page of a Service by each protocol with the right password, and the
// server gets the name, not an address, from those options that promise it.
// It observes SOCKS-08 of docs/requirements.md.
func TestCurl(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		host string // as the server must see it
	}{
		{"socks5 with a name", []string{"--socks5-hostname", "ADDR", "--proxy-user", testUser + ":" + testPassword, "http://web.default:81/"}, "web.default"},
		{"socks5h URL", []string{"--proxy", "socks5h://alice:correct%20horse@ADDR", "http://web.default:81/"}, "web.default"},
		{"socks5 with an address", []string{"--socks5", "ADDR", "--proxy-user", testUser + ":" + testPassword, "WEB"}, "127.0.0.1"},
		{"CONNECT", []string{"--proxytunnel", "--proxy", "http://ADDR", "--proxy-user", testUser + ":" + testPassword, "http://web.default:81/"}, "web.default"},
		{"CONNECT after a challenge", []string{"--proxytunnel", "--proxy", "http://ADDR", "--proxy-anyauth", "--proxy-user", testUser + ":" + testPassword, "http://web.default:81/"}, "web.default"},
		{"upload", []string{"--socks5-hostname", "ADDR", "--proxy-user", testUser + ":" + testPassword, "-d", "12345", "http://web.default:81/"}, "web.default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			srv := web(t, w)
			replace := strings.NewReplacer("ADDR", w.addr, "WEB", srv.URL)
			for i := range c.args {
				c.args[i] = replace.Replace(c.args[i])
			}
			out, err := curl(t, c.args...)
			if err != nil || !strings.HasPrefix(out, "hello ") {
				t.Fatalf("%q, %v", out, err)
			}
			if got := w.hosts(); !slices.Equal(got, []string{c.host}) {
				t.Errorf("the server was asked for %q, want %q", got, c.host)
			}
			connections := 1
			if slices.Contains(c.args, "--proxy-anyauth") {
				connections = 2 // the first one gets the challenge
			}
			if all := w.ended(t, connections); all[len(all)-1].Result != ResultOK || all[len(all)-1].User != testUser {
				t.Errorf("%+v", all)
			}
		})
	}
}

// TestCurlRefused: curl reports a wrong password, and a destination that is refused, with
// the code that the table of reasons has for it; nothing is dialed.
func TestCurlRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"wrong password", "User was rejected by the SOCKS5 server", []string{"--socks5-hostname", "ADDR", "--proxy-user", "alice:wrong", "http://web.default/"}},
		{"no password", "No authentication method was acceptable", []string{"--socks5-hostname", "ADDR", "http://web.default/"}},
		{"unknown name", "(4)", []string{"--socks5-hostname", "ADDR", "--proxy-user", testUser + ":" + testPassword, "http://nothing.default/"}},
		{"wrong password of CONNECT", "407", []string{"--proxytunnel", "--proxy", "http://alice:wrong@ADDR", "http://web.default/"}},
		{"unknown name of CONNECT", "404", []string{"--proxytunnel", "--proxy", "http://alice:correct%20horse@ADDR", "http://nothing.default/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			srv := web(t, w)
			srv.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") })
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "ADDR", w.addr)
			}
			if out, err := curl(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v; want an error with %q", out, err, c.want)
			}
		})
	}
}

// TestGoClients: the proxies of x/net/proxy and of net/http send names, not addresses, for
// socks5 as well as for socks5h, and work with a user and a password.
// It observes SOCKS-08 of docs/requirements.md.
// It also observes OLD-98 of docs/requirements.md.
func TestGoClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web(t, w)
	d, err := proxy.SOCKS5("tcp", w.addr, &proxy.Auth{User: testUser, Password: testPassword}, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	transports := map[string]*http.Transport{"x/net/proxy": {DialContext: d.(proxy.ContextDialer).DialContext}}
	for _, scheme := range []string{"socks5", "socks5h"} {
		u := &url.URL{Scheme: scheme, Host: w.addr, User: url.UserPassword(testUser, testPassword)}
		transports[scheme] = &http.Transport{Proxy: http.ProxyURL(u)}
	}
	for name, tr := range transports {
		res, err := (&http.Client{Transport: tr}).Get("http://web.default:8080/")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(body) != "hello web.default:8080 0" {
			t.Errorf("%s: %q", name, body)
		}
		tr.CloseIdleConnections()
	}
	if got := w.hosts(); !slices.Equal(got, []string{"web.default", "web.default", "web.default"}) {
		t.Errorf("the server was asked for %q", got)
	}
}

// TestNetcatAsProxyCommand: nc, as OpenSSH calls it in a ProxyCommand, reaches a server by
// both protocols without a user, and the end of its input arrives as an end.
func TestNetcatAsProxyCommand(t *testing.T) {
	t.Parallel()
	nc := daemontest.FindNetcat(t)
	for _, protocol := range []string{daemontest.NetcatSOCKS5, daemontest.NetcatCONNECT} {
		w := newWorld(t, anonymous)
		w.name("count.default", serveTCP(t, countAtEnd))
		command := nc.Command(protocol, w.addr, "count.default", "22")
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Stdin = strings.NewReader("12345")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "got 5" {
			t.Errorf("%q: %q, %v", command, out, err)
		}
	}
}

// TestOpenSSHThroughProxyCommand: the handshake of ssh reaches the server through nc.
func TestOpenSSHThroughProxyCommand(t *testing.T) {
	t.Parallel()
	ssh, nc := daemontest.Program(t, "ssh"), daemontest.FindNetcat(t)
	w := newWorld(t, anonymous)
	greeting := make(chan string, 1)
	w.name("bastion.default", serveTCP(t, func(nc *net.TCPConn) {
		_, _ = io.WriteString(nc, "SSH-2.0-test\r\n") // the server speaks first
		b := make([]byte, 8)
		_, _ = io.ReadFull(nc, b)
		greeting <- string(b)
	}))
	command := strings.Join(nc.Command(daemontest.NetcatSOCKS5, w.addr, "%h", "%p"), " ")
	// ssh is ended once its greeting is there: how it ends when the server goes away depends on nc.
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, ssh, "-F", "none", "-o", "ProxyCommand="+command, "bastion.default")
	cmd.WaitDelay = time.Second // nc may hold the pipe
	output := make(chan []byte, 1)
	go func() {
		out, _ := cmd.CombinedOutput() // it is killed
		output <- out
	}()
	var out []byte
	select {
	case got := <-greeting:
		greeting <- got
		cancel()
		out = <-output
	case out = <-output:
		cancel()
	}
	select {
	case got := <-greeting:
		if got != "SSH-2.0-" {
			t.Errorf("the server got %q", got)
		}
	default:
		t.Errorf("the server got nothing: %s", out)
	}
}
