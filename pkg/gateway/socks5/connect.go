// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// maxHead bounds the head of a request in bytes.
const maxHead = 16 << 10

// connect is HTTP CONNECT on one connection.
type connect struct {
	*conn
	status int // overrides that of the reason
}

func (c *connect) name() string { return "http" }

func (c *connect) handshake(ctx context.Context) (target, error) {
	req, err := c.readRequest()
	if err != nil {
		return target{}, err
	}
	cred, err := credentials(req.Header)
	if err != nil {
		return target{}, err
	}
	client, err := c.identify(ctx, cred)
	if err != nil {
		return target{}, err
	}
	if req.Method != http.MethodConnect {
		c.status = http.StatusMethodNotAllowed
		return target{}, gateway.Errorf(gateway.ReasonUnsupported, "use CONNECT (curl --proxytunnel), or socks5h:// as the proxy's scheme",
			"this proxy only opens connections, it does not forward %.16s requests", req.Method)
	}
	t := target{client: client, trace: traceparent.Parse(req.Header.Get(traceparent.Header))}
	if t.host, t.port, err = authority(req); err != nil {
		return target{}, err
	}
	c.rec.setTarget(t)
	return t, nil
}

// readRequest reads the head of a request strictly: what other readers might understand in
// another way is refused.
func (c *connect) readRequest() (*http.Request, error) {
	var head []byte
	for {
		line, err := c.in.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case len(head) > maxHead:
			c.status = http.StatusRequestHeaderFieldsTooLarge
			return nil, gateway.Errorf(ReasonMalformed, "", "the head of the request is larger than %d bytes", maxHead)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, readError("request", err)
		case !bytes.HasSuffix(head, []byte("\r\n")):
			return nil, gateway.Errorf(ReasonMalformed, "", "a line ends in LF without CR")
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			return parseHead(head)
		}
	}
}

func parseHead(head []byte) (*http.Request, error) {
	for i, line := range bytes.Split(head, []byte("\r\n")) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.ContainsAny(line, "\r\x00"):
			return nil, gateway.Errorf(ReasonMalformed, "", "a line contains CR or NUL")
		case i > 0 && bytes.ContainsAny(name, " \t"):
			return nil, gateway.Errorf(ReasonMalformed, "", "a header line has white space before its colon")
		}
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil, gateway.Errorf(ReasonMalformed, "", "%w", err)
	}
	if req.ProtoMajor != 1 {
		return nil, gateway.Errorf(ReasonMalformed, "", "HTTP/%d.%d is not supported: use HTTP/1.1", req.ProtoMajor, req.ProtoMinor)
	}
	if req.Method == http.MethodConnect && (req.ContentLength > 0 || len(req.TransferEncoding) > 0) {
		return nil, gateway.Errorf(ReasonMalformed, "", "CONNECT has no body, but the request announces one")
	}
	return req, nil
}

// authority reads the target of a CONNECT request: host:port and nothing else.
func authority(req *http.Request) (string, uint16, error) {
	bad := func(format string, args ...any) (string, uint16, error) {
		return "", 0, gateway.Errorf(ReasonMalformed, "", "the target of CONNECT must be host:port: %w", fmt.Errorf(format, args...))
	}
	if strings.ContainsAny(req.RequestURI, "@/?#\\%") {
		return bad("%.64q contains more", req.RequestURI)
	}
	host, text, err := net.SplitHostPort(req.RequestURI)
	if err != nil {
		return bad("%w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || text[0] == '+' {
		return bad("%.16q is no port", text)
	}
	return host, uint16(port), checkTarget(host, uint16(port))
}

// credentials reads Proxy-Authorization.
func credentials(h http.Header) (cred auth.Credentials, err error) {
	values := h.Values("Proxy-Authorization")
	if len(values) == 0 {
		return cred, nil
	}
	if len(values) > 1 {
		return cred, gateway.Errorf(ReasonMalformed, "", "more than one Proxy-Authorization")
	}
	scheme, value, _ := strings.Cut(values[0], " ")
	value = strings.TrimSpace(value)
	switch {
	case strings.EqualFold(scheme, "Bearer") && value != "":
		cred.Token = value
		return cred, nil
	case strings.EqualFold(scheme, "Basic"):
		text, err := base64.StdEncoding.DecodeString(value)
		name, password, ok := strings.Cut(string(text), ":")
		if err != nil || !ok {
			return cred, gateway.Errorf(ReasonMalformed, "", "the Basic credentials of Proxy-Authorization cannot be read")
		}
		cred.Login = &auth.Login{Name: name, Password: password}
		return cred, nil
	}
	return cred, gateway.Errorf(ReasonMalformed, "use Basic or Bearer", "unknown scheme of Proxy-Authorization")
}

func (c *connect) accept() error {
	if _, err := c.nc.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return readError("answer", err)
	}
	return nil
}

func (c *connect) refuse(e *gateway.Error) {
	status := answerTo(e.Reason).status
	if c.status != 0 {
		status = c.status
	}
	body := printable(e.Error()) + "\n"
	var b strings.Builder
	// Go clients show nothing but the text of the status line.
	fmt.Fprintf(&b, "HTTP/1.1 %d %s (%s)\r\n", status, http.StatusText(status), e.Reason)
	if status == http.StatusProxyAuthRequired {
		for _, challenge := range c.s.cfg.Authenticator.Challenges() {
			fmt.Fprintf(&b, "Proxy-Authenticate: %s\r\n", challenge)
		}
	}
	if status == http.StatusMethodNotAllowed {
		b.WriteString("Allow: CONNECT\r\n")
	}
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_, _ = c.nc.Write([]byte(b.String()))
}

// printable replaces control characters, which may come from a name that the client sent.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
