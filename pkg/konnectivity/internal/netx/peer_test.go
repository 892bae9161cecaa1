// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestPeer(t *testing.T) {
	for network, want := range map[string]string{
		"unix": fmt.Sprintf("a Unix socket, process %d of user %d", os.Getpid(), os.Getuid()), "tcp": "",
	} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		near, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		if network == "tcp" {
			want = c.LocalAddr().String()
		}
		if got := Peer(near); got != want {
			t.Errorf("%s: %q, want %q", network, got, want)
		}
		_ = near.Close()
		if got := Peer(near); network == "unix" && got != "a Unix socket" {
			t.Errorf("a closed one: %q", got)
		}
	}
}
