// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// strictRequests are requests that http.ReadRequest accepts, or reads differently from what they look like.
var strictRequests = []struct {
	name, head string
	want       error
}{
	{"user information", "CONNECT user:pw@10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", errAuthority},
	{"a path", "CONNECT 10.0.0.1:443/x HTTP/1.1\r\nHost: x\r\n\r\n", errAuthority},
	{"a query", "CONNECT 10.0.0.1:443?x=y HTTP/1.1\r\nHost: x\r\n\r\n", errAuthority},
	{"a fragment", "CONNECT 10.0.0.1:443#x HTTP/1.1\r\nHost: x\r\n\r\n", errAuthority},
	{"absolute form", "CONNECT http://10.0.0.1:443/ HTTP/1.1\r\nHost: x\r\n\r\n", errAuthority},
	{"a folded header", "CONNECT 10.0.0.1:443 HTTP/1.1\r\nA: b\r\n c\r\nHost: x\r\n\r\n", errFold},
	{"a folded first header", "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\tHost: x\r\n\r\n", errFold},
	{"a space before the colon", "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost : x\r\n\r\n", errFieldName},
	{"a space in a name", "CONNECT 10.0.0.1:443 HTTP/1.1\r\nA b: x\r\nHost: x\r\n\r\n", errFieldName},
	{"both lengths", "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\ncontent-length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", errLengths},
}

// TestStrictConnect checks that a request that two parsers might read differently is refused with status 400, and
// that the requests of kube-apiserver and curl are accepted.
func TestStrictConnect(t *testing.T) {
	for _, c := range strictRequests {
		_, status, err := parseConnect([]byte(c.head))
		if status != http.StatusBadRequest {
			t.Errorf("%s: status %d, %v", c.name, status, err)
		}
		// http.ReadRequest refuses some of the requests itself, with its own errors. These need not reach the
		// check here.
		var syntax bool
		for _, ours := range []error{errAuthority, errFold, errFieldName, errLengths} {
			syntax = syntax || errors.Is(err, ours)
		}
		if syntax && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for head, want := range map[string]string{
		"CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                                              "10.0.0.1:10250",
		"CONNECT node-1.example:443 HTTP/1.1\r\nHost: node-1.example:443\r\nProxy-Connection: Keep-Alive\r\n\r\n": "node-1.example:443",
		"CONNECT [fd00::1]:443 HTTP/1.0\r\n\r\n":                                                                  "[fd00::1]:443",
	} {
		if got, status, err := parseConnect([]byte(head)); got.address != want || status != 0 || err != nil {
			t.Errorf("%q: %q, status %d, %v", head, got.address, status, err)
		}
	}
}

// TestBareLineFeed checks that a client whose lines end in LF alone is answered at once. Otherwise it would wait
// for an answer until headerTimeout, as its head never ends.
func TestBareLineFeed(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = far.Write([]byte("CONNECT 10.0.0.1:443 HTTP/1.1\nHost: x\n\n")) }()
	_ = near.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, status, err := (&connectFrontend{in: netx.New(near)}).readRequest()
	if status != http.StatusBadRequest || !errors.Is(err, errBareLineFeed) {
		t.Errorf("status %d, %v", status, err)
	}
}

// TestFrontendChoosesNoAgent: a client of the frontend cannot choose an agent, which would go past the strategies and
// --local-destinations. Only the listeners for state let clients choose, with --state-connect.
func TestFrontendChoosesNoAgent(t *testing.T) {
	for _, value := range []string{"id=one", "id=one&owner=node-1", "no agent"} {
		got, status, err := parseConnect([]byte("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\nFairlead-Agent: " + value + "\r\n\r\n"))
		if got.agent != nil || status != 0 || err != nil {
			t.Errorf("%q: agent %v, status %d, %v", value, got.agent, status, err)
		}
	}
}
