// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// inNamespace names the variable that is set in a process that has its own resolv.conf and
// network.
const inNamespace = "FAIRLEAD_TEST_NAMESPACE"

// TestSilentNameserver: the first nameserver of resolv.conf is silent, or the first two are.
// Destinations, also those that a search domain completes, and the servers' name are found by
// the next one within the default time for a dial.
func TestSilentNameserver(t *testing.T) {
	t.Parallel()
	for name, conf := range map[string]string{
		"first":            "nameserver 127.0.0.2\nnameserver 127.0.0.4\n",
		"first two":        "nameserver 127.0.0.2\nnameserver 127.0.0.3\nnameserver 127.0.0.4\n",
		"search domains":   "nameserver 127.0.0.2\nnameserver 127.0.0.4\nsearch a.test b.test c.test d.test e.test\noptions ndots:5\n",
		"answers by error": "nameserver 127.0.0.5\nnameserver 127.0.0.4\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a process of its own, which waits for the resolver
			if os.Getenv(inNamespace) == "" {
				runInNamespace(t, t.Name())
				return
			}
			enterNamespace(t, conf)
			for _, silent := range []string{"127.0.0.2", "127.0.0.3"} {
				listenDNS(t, silent)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			serveDNS(listenDNS(t, "127.0.0.4"))
			_, port, _ := net.SplitHostPort(l.Addr().String())
			a := New(Config{Address: "web.test:1"}, NewMetrics())
			for i := range 3 { // later ones know which nameserver is silent
				ctx, cancel := context.WithTimeout(t.Context(), a.cfg.DialTimeout)
				nc, err := a.connect(ctx, net.JoinHostPort("web.test", port))
				cancel()
				if err != nil {
					t.Fatalf("dial %d: %v", i, err)
				}
				nc.Close()
			}
			b := New(Config{Address: "web.test:1"}, NewMetrics())
			if found, err := b.addresses(t.Context()); err != nil || len(found) != 1 || found[0] != "127.0.0.1:1" {
				t.Errorf("the servers' name resolves to %q, %v", found, err)
			}
		})
	}
}

// runInNamespace runs a test once more in namespaces of its own.
func runInNamespace(t *testing.T, name string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for namespaces")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this machine allows no namespaces")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// enterNamespace gives the process its resolv.conf and its loopback device.
func enterNamespace(t *testing.T, conf string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

func listenDNS(t *testing.T, ip string) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// serveDNS answers for web.test, and that there is no other name.
func serveDNS(c net.PacketConn) {
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			switch {
			case q.Name.String() != "web.test.":
				m.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
}

// TestPatienceWithNameservers: a nameserver that was silent is waited for only a short time
// while another one answers, and as long as ever where none does: it may be slow.
func TestPatienceWithNameservers(t *testing.T) {
	const full = time.Second
	times := func() *nameserverTimes {
		return &nameserverTimes{wait: full, seen: map[string]*nameserver{}}
	}
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	timeout := fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
	for name, c := range map[string]struct {
		happen func(n *nameserverTimes)
		want   time.Duration
	}{
		"new":             {func(*nameserverTimes) {}, full},
		"alone":           {func(n *nameserverTimes) { n.note("a", past, timeout) }, full},
		"another answers": {func(n *nameserverTimes) { n.note("a", past, timeout); n.note("b", past, nil) }, silentWait},
		"another did":     {func(n *nameserverTimes) { n.note("b", past, nil); n.note("a", past, timeout) }, full},
		"answers again":   {func(n *nameserverTimes) { n.note("a", past, timeout); n.note("b", past, nil); n.note("a", past, nil) }, full},
		"cut off":         {func(n *nameserverTimes) { n.note("a", future, timeout); n.note("b", past, nil) }, full},
		"refuses":         {func(n *nameserverTimes) { n.note("a", past, syscall.ECONNREFUSED); n.note("b", past, nil) }, full},
	} {
		n := times()
		c.happen(n)
		if got := n.patience("a"); got != c.want {
			t.Errorf("%s: waits for %v, want %v", name, got, c.want)
		}
	}
	n := times()
	for i := range 10 * maxNameservers {
		n.note(fmt.Sprint(i), past, nil)
	}
	if len(n.seen) > maxNameservers {
		t.Errorf("%d nameservers are remembered, at most %d should be", len(n.seen), maxNameservers)
	}
}
