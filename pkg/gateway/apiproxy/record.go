// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// statusClientGone is the status in log and metrics of a request whose client went away
// before the answer began. No client receives it.
const statusClientGone = 499

// recorder is a ResponseWriter that remembers what is logged and counted.
type recorder struct {
	http.ResponseWriter
	h       *Handler
	req     *http.Request
	start   time.Time
	kind    string
	status  int
	reason  string
	sent    atomic.Int64 // bytes to the client
	receive atomic.Int64 // bytes from the client, of upgrades
}

// begin starts to record a request.
func (h *Handler) begin(w http.ResponseWriter, req *http.Request) *recorder {
	r := &recorder{ResponseWriter: w, h: h, req: req, start: time.Now(), kind: kindOf(req)}
	h.metrics.inFlight.WithLabelValues(r.kind).Inc()
	return r
}

// The kinds of requests in log and metrics.
const (
	kindRequest = "request"
	kindStream  = "stream"
	kindUpgrade = "upgrade"
)

// kindOf tells what a request is: an upgrade, a watch or a log that is followed, or a
// request that ends by itself.
func kindOf(req *http.Request) string {
	switch {
	case httpstream.IsUpgradeRequest(req):
		return kindUpgrade
	case req.Method != http.MethodGet:
		return kindRequest
	}
	if q := req.URL.Query(); isSet(q["watch"]) || isSet(q["follow"]) || watchesByPath(req.URL.Path) {
		return kindStream
	}
	return kindRequest
}

// isSet reads a parameter as kube-apiserver does, in runtime.Convert_Slice_string_To_bool: the Python client sends "True", and a
// name without a value is true as well.
func isSet(values []string) bool {
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// watchesByPath reports whether a path is one of the old form of watches: /api/v1/watch/pods, /apis/apps/v1/watch/deployments. What
// comes before is a prefix.
func watchesByPath(path string) bool {
	parts := strings.Split(path, "/")
	i := slices.IndexFunc(parts, func(part string) bool { return part == "api" || part == "apis" })
	if i < 0 {
		return false
	}
	after := 2 // the version
	if parts[i] == "apis" {
		after = 3 // the group, too
	}
	return len(parts) > i+after+1 && parts[i+after] == "watch"
}

// Unwrap lets http.ResponseController find Flush and deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader remembers the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.sent.Add(int64(n))
	return n, err
}

// Hijack hands over a connection that counts.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	r.status = http.StatusSwitchingProtocols
	counted := &countedConn{Conn: c, r: r}
	if n := rw.Reader.Buffered(); n > 0 {
		// What the client has sent already must not be lost.
		early, err := rw.Reader.Peek(n)
		if err != nil {
			_ = c.Close()
			return nil, nil, err
		}
		counted.early = append([]byte(nil), early...)
	}
	return counted, rw, nil
}

// countedConn counts an upgraded connection's bytes.
type countedConn struct {
	net.Conn
	r     *recorder
	early []byte
}

func (c *countedConn) Read(b []byte) (n int, err error) {
	if len(c.early) > 0 {
		n, c.early = copy(b, c.early), c.early[min(len(b), len(c.early)):]
	} else {
		n, err = c.Conn.Read(b)
	}
	c.r.receive.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.r.sent.Add(int64(n))
	return n, err
}

// CloseWrite ends one direction where the connection can do that.
func (c *countedConn) CloseWrite() error {
	return closeWrite(c.Conn)
}

// refuse answers with a Status object, as the API server does.
func (r *recorder) refuse(code int, why refusal) {
	r.reason = why.reason
	r.h.metrics.refused.WithLabelValues(why.reason).Inc()
	r.Header().Set("Content-Type", "application/json")
	r.Header().Set("X-Content-Type-Options", "nosniff")
	r.WriteHeader(code)
	_ = json.NewEncoder(r).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: statusReasons[code],
		Message: "fairlead proxy: " + why.message,
	})
}

// statusReasons are what clients tell errors apart by.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized:    metav1.StatusReasonUnauthorized,
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusForbidden:       metav1.StatusReasonForbidden,
	http.StatusNotFound:        metav1.StatusReasonNotFound,
	http.StatusBadGateway:      "BadGateway",
}

// abandoned notes why a request ended before the API server answered.
func (r *recorder) abandoned(cause error) {
	if errors.Is(cause, errStopped) {
		r.refuse(http.StatusServiceUnavailable, refusal{"stopped", "the proxy is stopping"})
		return
	}
	r.status, r.reason = statusClientGone, "client-gone"
}

// end logs and counts the request. It leaves out the query, which may hold commands,
// tokens and selectors, and all headers but User-Agent.
func (r *recorder) end() {
	m, took := r.h.metrics, time.Since(r.start)
	m.inFlight.WithLabelValues(r.kind).Dec()
	m.requests.WithLabelValues(methodLabel(r.req.Method), statusLabel(r.status)).Inc()
	m.bytes.WithLabelValues("sent").Add(float64(r.sent.Load()))
	m.bytes.WithLabelValues("received").Add(float64(r.receive.Load() + max(r.req.ContentLength, 0)))
	if r.kind == kindRequest {
		m.duration.Observe(took.Seconds())
	}
	fields := []any{"method", logthrottle.Clip(r.req.Method), "path", logthrottle.Clip(r.req.URL.EscapedPath()), "kind", r.kind, "status", r.status,
		"duration", took, "bytesSent", r.sent.Load(), "client", r.req.RemoteAddr, "userAgent", logthrottle.Clip(r.req.UserAgent())}
	if r.reason != "" {
		fields = append(fields, "reason", r.reason)
	}
	r.h.o.Log.Info("Request", fields...)
}
