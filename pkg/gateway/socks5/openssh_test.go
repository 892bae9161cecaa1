// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/proxy"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// asNetcat makes this test binary what "nc -N -X 5 -x PROXY HOST PORT" is, which not every machine
// has. Its value is the proxy and the destination.
const asNetcat = "SOCKS5_TEST_AS_NETCAT"

// netcat joins a connection through the proxy with standard input and output.
func netcat(args string) int {
	server, to, _ := strings.Cut(args, " ")
	d, err := proxy.SOCKS5("tcp", server, &proxy.Auth{User: testUser, Password: testPassword}, proxy.Direct)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	nc, err := d.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(nc, os.Stdin)
		if half, ok := nc.(gateway.Conn); ok {
			_ = half.CloseWrite()
		}
	}()
	_, _ = io.Copy(os.Stdout, nc)
	return 0
}

// TestOpenSSH: OpenSSH's client logs in to OpenSSH's server through the proxy, with a
// ProxyCommand, and a command there gets and returns what it should, up to the end of its input.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	ssh := daemontest.Program(t, "ssh")
	b := sshdtest.New(t)
	login, address, _ := strings.Cut(b.Target, "@")
	w := newWorld(t)
	w.name("bastion.default", netip.MustParseAddrPort(address))
	sent := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(sent)
	known := netip.MustParseAddrPort(address)
	cmd := exec.CommandContext(t.Context(), ssh, "-F", "none", "-i", filepath.Join(b.Home, ".ssh", "id_ed25519"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
		"-o", "UserKnownHostsFile="+filepath.Join(b.Home, ".ssh", "known_hosts"), "-o", fmt.Sprintf("HostKeyAlias=[%s]:%d", known.Addr(), known.Port()),
		"-o", "ProxyCommand=env '"+asNetcat+"="+w.addr+" %h:%p' "+os.Args[0], login+"@bastion.default", "cat")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(sent), &out, &errs
	if err := cmd.Run(); err != nil || !bytes.Equal(out.Bytes(), sent) {
		t.Errorf("%d bytes came back, sent %d: %v\n%s", out.Len(), len(sent), err, &errs)
	}
	if r := w.ended(t, 1)[0]; r.Destination != "bastion.default:22" || r.Result != ResultOK || r.BytesSent <= int64(len(sent)) || r.BytesReceived <= int64(len(sent)) {
		t.Errorf("%+v", r)
	}
}
