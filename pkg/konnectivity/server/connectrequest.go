// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// maxRequest bounds the head of a request in bytes.
const maxRequest = 16 << 10

// connectRequest is what counts in a request.
type connectRequest struct {
	address string
	trace   traceparent.Context
	agent   *state.Agent // that a client of the state's listeners chooses; nil leaves the choice to the server
}

// readRequest reads the head of the request. A status of 0 means that the client has gone and gets no answer.
func (c *connectFrontend) readRequest() (request connectRequest, status int, err error) {
	var head []byte
	for {
		chunk, err := c.in.ReadChunk(maxRequest)
		switch {
		case err != nil && len(head) > 0:
			return connectRequest{}, http.StatusBadRequest, fmt.Errorf("request is cut off after %d bytes: %w", len(head), err)
		case err != nil:
			return connectRequest{}, 0, err
		}
		seen := len(head)
		head = append(head, chunk.Bytes()...)
		chunk.Release()
		end := bytes.Index(head, []byte("\r\n\r\n")) + 4
		complete := end >= 4 && end <= maxRequest
		lines := head[:min(len(head), maxRequest)]
		if complete {
			lines = head[:end]
		}
		if bareLineFeed(lines, seen) {
			return connectRequest{}, http.StatusBadRequest, errBareLineFeed
		}
		if complete {
			c.in.Unread(head[end:])
			return parseConnect(head[:end])
		}
		if len(head) >= maxRequest {
			return connectRequest{}, http.StatusRequestHeaderFieldsTooLarge, fmt.Errorf("request is larger than %d bytes", maxRequest)
		}
	}
}

// The server refuses requests that another HTTP parser might read differently. RFC 9112 allows that: sections 2.2
// (bare LF), 3.2.3 (authority-form), 5.1 (space before the colon), 5.2 (obs-fold) and 6.1 (both lengths).
var (
	errBareLineFeed = errors.New("a line ends in LF without CR")
	errAuthority    = errors.New("the request target of CONNECT must be host:port, and nothing else")
	errFold         = errors.New("a header line begins with white space")
	errFieldName    = errors.New("a header line has white space before its colon")
	errLengths      = errors.New("the request has Content-Length and Transfer-Encoding")
)

// bareLineFeed reports whether a line ends in LF without CR. The bytes before seen are already checked.
func bareLineFeed(lines []byte, seen int) bool {
	for i := min(seen, len(lines)); i < len(lines); i++ {
		if lines[i] == '\n' && (i == 0 || lines[i-1] != '\r') {
			return true
		}
	}
	return false
}

func parseConnect(head []byte) (connectRequest, int, error) {
	if err := checkLines(head); err != nil {
		return connectRequest{}, http.StatusBadRequest, err
	}
	req, err := http.ReadRequest(bufio.NewReaderSize(bytes.NewReader(head), 512))
	if err != nil {
		return connectRequest{}, http.StatusBadRequest, err
	}
	if req.Method != http.MethodConnect {
		return connectRequest{}, http.StatusMethodNotAllowed, errors.New("this proxy only supports CONNECT passthrough")
	}
	if req.ProtoMajor != 1 {
		return connectRequest{}, http.StatusHTTPVersionNotSupported, fmt.Errorf("%s is not supported: use HTTP/1.1", req.Proto)
	}
	// The request line counts, not the Host header: kube-apiserver sends
	// "Host: 127.0.0.1" with every request.
	address := req.URL.Host
	if address == "" || address != req.RequestURI || strings.ContainsAny(address, "@/?#\\") {
		return connectRequest{}, http.StatusBadRequest, errAuthority
	}
	if err := checkAddress(address); err != nil {
		return connectRequest{}, http.StatusBadRequest, err
	}
	// The clone does not keep the whole request in memory.
	return connectRequest{strings.Clone(address), traceparent.Parse(req.Header.Get(traceparent.Header)), nil}, 0, nil
}

// checkLines rejects what http.ReadRequest accepts and a strict RFC 9112 parser does not.
func checkLines(head []byte) error {
	var length, encoding bool
	for i, line := range bytes.Split(head, []byte("\r\n")) {
		if i == 0 || len(line) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			return errFold
		}
		name, _, _ := bytes.Cut(line, []byte(":"))
		if bytes.ContainsAny(name, " \t") {
			return errFieldName
		}
		length = length || bytes.EqualFold(name, []byte("Content-Length"))
		encoding = encoding || bytes.EqualFold(name, []byte("Transfer-Encoding"))
	}
	if length && encoding {
		return errLengths
	}
	return nil
}
