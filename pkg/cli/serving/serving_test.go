// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestRunCommand: variables replace those of the same name, and the exit code is the command's,
// also for one that does not exist.
func TestRunCommand(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_VARIABLE", "old")
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	env := map[string]string{"FAIRLEAD_TEST_VARIABLE": "new"}
	err := RunCommand(t.Context(), streams, []string{"sh", "-c", "env | grep FAIRLEAD_TEST_VARIABLE"}, env)
	if err != nil || out.String() != "FAIRLEAD_TEST_VARIABLE=new\n" {
		t.Errorf("the command sees %q, %v", &out, err)
	}
	for args, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137} {
		if err = RunCommand(t.Context(), streams, []string{"sh", "-c", args}, nil); code(err) != want {
			t.Errorf("%s: %v, want exit code %d", args, err, want)
		}
	}
	if err = RunCommand(t.Context(), streams, []string{"no-such-program"}, nil); code(err) != 127 || !strings.Contains(out.String(), "no-such-program") {
		t.Errorf("a program that does not exist: %v, %s", err, &out)
	}
}

func code(err error) int {
	var c interface{ CommandExitCode() int }
	if !errors.As(err, &c) {
		return -1
	}
	return c.CommandExitCode()
}

// TestLocalAddress: a listener on all addresses is reached on loopback.
func TestLocalAddress(t *testing.T) {
	for _, c := range []struct {
		ip   net.IP
		want string
	}{
		{net.IPv4zero, "127.0.0.1:1080"}, {net.IPv6unspecified, "[::1]:1080"}, {net.IPv4(192, 0, 2, 1), "192.0.2.1:1080"},
	} {
		if got := LocalAddress(&net.TCPAddr{IP: c.ip, Port: 1080}); got != c.want {
			t.Errorf("%v: %s, want %s", c.ip, got, c.want)
		}
	}
}
