// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
)

// records reads an audit log.
func records(t *testing.T, path string) (all []gatewaysocks5.Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r gatewaysocks5.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		all = append(all, r)
	}
	return all
}

// mustAudit opens an audit log for a test.
func mustAudit(t *testing.T, path string) *audit {
	t.Helper()
	a, err := newAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// TestAuditRotation: a log that is renamed or removed goes on in a new file of its name. While that cannot be
// opened, and after copytruncate, it goes on in the file that is open.
func TestAuditRotation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.json")
	a := mustAudit(t, path)
	write := func(user string) { a.Record(gatewaysocks5.Record{User: user, Result: gatewaysocks5.ResultOK}) }
	want := func(file string, users ...string) {
		t.Helper()
		var got []string
		for _, r := range records(t, file) {
			got = append(got, r.User)
		}
		if strings.Join(got, " ") != strings.Join(users, " ") {
			t.Errorf("%s has %q, want %q", filepath.Base(file), got, users)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	must(os.Rename(path, path+".1"))
	write("b")
	write("c")
	want(path+".1", "a")
	want(path, "b", "c")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the new file: %v, %v", info.Mode(), err)
	}
	must(os.Rename(path, path+".2"))
	must(os.WriteFile(path, nil, 0o600)) // as logrotate's "create" does
	write("d")
	want(path+".2", "b", "c")
	want(path, "d")
	must(os.Truncate(path, 0)) // as logrotate's "copytruncate" does
	write("e")
	want(path, "e")
	must(os.Rename(dir, dir+".moved")) // nothing can be opened
	write("f")
	want(filepath.Join(dir+".moved", "audit.json"), "e", "f")
	must(os.Rename(dir+".moved", dir))
	must(os.Remove(path))
	write("g")
	want(path, "g")
}

// TestAuditOfStrangers: clients without a user leave one line for each reason, and later one with how many more there
// were. Those of a network count as one client. Each connection of a user leaves a line.
func TestAuditOfStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	synctest.Test(t, func(t *testing.T) {
		a := mustAudit(t, path)
		for port := range 100 {
			addr := func(ip string) string { return net.JoinHostPort(ip, string(rune('1'+port%9))) }
			a.Record(gatewaysocks5.Record{Client: addr("192.0.2.1"), Result: "malformed", Error: "the first byte belongs to neither"})
			a.Record(gatewaysocks5.Record{Client: addr("192.0.2.1"), Result: "timeout", Error: "not in time"})
			a.Record(gatewaysocks5.Record{Client: addr("2001:db8::" + string(rune('1'+port%9))), Result: "timeout", Error: "not in time"})
			a.Record(gatewaysocks5.Record{Client: addr("192.0.2.1"), User: "alice", Result: gatewaysocks5.ResultOK})
		}
		time.Sleep(time.Hour)
		a.Record(gatewaysocks5.Record{Client: "192.0.2.1:9", Result: "timeout", Error: "not in time"})
	})
	lines, more := map[string]int{}, 0
	for _, r := range records(t, path) {
		host, _, _ := net.SplitHostPort(r.Client)
		lines[r.User+host+r.Result]++
		more += r.Repeated
	}
	if len(lines) != 4 || lines["192.0.2.1malformed"] != 1 || lines["192.0.2.1timeout"] != 2 || lines["2001:db8::1timeout"] != 1 || lines["alice192.0.2.1ok"] != 100 || more != 99 {
		t.Errorf("%v, %d more", lines, more)
	}
}

// start runs a proxy, and returns its URL, with the random password if there is one, and what ends it.
func start(t *testing.T, o *Options, out *buffer) (u *url.URL, stop func()) {
	t.Helper()
	o.URLFile = filepath.Join(t.TempDir(), "url")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	daemontest.Eventually(t, time.Minute, func() error {
		text, _ := os.ReadFile(o.URLFile)
		if address := regexp.MustCompile(`HTTP CONNECT on (\S+)`).FindStringSubmatch(out.String()); o.PasswordFile != "" && address != nil {
			text = []byte("http://" + address[1]) // no file has the password
		}
		if len(text) == 0 {
			return errors.New(out.String())
		}
		var err error
		u, err = url.Parse(strings.TrimSpace(string(text)))
		return err
	})
	return u, stop
}

// TestAuditOfScanner: a scanner's connections to the proxy leave one line, and the log of a user's connection goes on
// after it was rotated.
func TestAuditOfScanner(t *testing.T) {
	o, out := newOptions(t)
	u, stop := start(t, o, out)
	for range 50 {
		nc, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = nc.Write([]byte{0})
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
	}
	rotated := o.AuditLog + ".1"
	daemontest.Eventually(t, time.Minute, func() error {
		if len(records(t, o.AuditLog)) == 0 {
			return errors.New("the audit log has no line")
		}
		return nil
	})
	if err := os.Rename(o.AuditLog, rotated); err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}).Get("http://hello.default/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	stop()
	if all := records(t, rotated); len(all) != 1 || all[0].Result != "malformed" {
		t.Errorf("the scanner: %+v", all)
	}
	if all := records(t, o.AuditLog); len(all) != 1 || all[0].User == "" || !regexp.MustCompile(`^hello\.default:`).MatchString(all[0].Destination) {
		t.Errorf("the user: %+v", all)
	}
}
