// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// The default prefixes of kubectl proxy.
const (
	DefaultAPIPrefix    = "/"
	DefaultStaticPrefix = "/static/"
)

// Options configure a [Handler].
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Filter decides what is forwarded; nil forwards everything.
	Filter *Filter
	// APIPrefix is the path below which the API is served. It is removed from the path
	// unless it begins with /api.
	APIPrefix string
	// StaticDir, if not empty, is served below StaticPrefix.
	StaticDir, StaticPrefix string
	// AppendServerPath puts the path of the API server's URL before every path.
	AppendServerPath bool
	// Keepalive is the period of keep-alive probes on connections to the API server; 0 is
	// client-go's default of 30 s, negative values disable them.
	Keepalive time.Duration
	// Token, if not empty, is what clients have to send as a bearer token. The API server
	// does not receive it.
	Token string
	// Failures bounds and delays guesses of Token; nil does neither, for one that cannot be guessed.
	Failures *gateway.Failures
	// TLS is what Serve speaks to clients; nil is plain HTTP.
	TLS *tls.Config
	// Log receives one line for each request.
	Log logr.Logger
	// Registry receives the metrics; nil keeps none.
	Registry prometheus.Registerer
	// Explain turns an error of reaching the API server into what is wrong and what to do;
	// nil uses the error's text.
	Explain func(error) string

	goneAfter time.Duration // of tests
}

// Handler is the proxy.
type Handler struct {
	o       Options
	api     func(*recorder, *http.Request)
	static  http.Handler
	metrics *metrics
	token   [sha256.Size]byte
	// open is the number of requests that are being answered, upgrades among them.
	open atomic.Int64
}

// New makes the handler.
func New(o Options) (*Handler, error) {
	if o.Config == nil {
		return nil, errors.New("the API server's configuration is missing")
	}
	if o.Explain == nil {
		o.Explain = func(err error) string { return err.Error() }
	}
	o.APIPrefix = withSlashes(cmp.Or(o.APIPrefix, DefaultAPIPrefix))
	o.StaticPrefix = withSlashes(cmp.Or(o.StaticPrefix, DefaultStaticPrefix))
	if o.StaticDir != "" && o.StaticPrefix == o.APIPrefix {
		return nil, fmt.Errorf("static files and the API have the same prefix %q: choose another --www-prefix or --api-prefix", o.APIPrefix)
	}
	o.goneAfter = cmp.Or(o.goneAfter, gone.Default)
	h := &Handler{o: o, token: sha256.Sum256([]byte(o.Token))}
	var err error
	if h.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, err
	}
	if h.api, err = h.newAPI(); err != nil {
		return nil, err
	}
	if o.StaticDir != "" {
		h.static = http.StripPrefix(strings.TrimSuffix(o.StaticPrefix, "/"), http.FileServer(http.Dir(o.StaticDir)))
	}
	return h, nil
}

// withSlashes makes a prefix begin and end with a slash.
func withSlashes(prefix string) string {
	if !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	if !strings.HasPrefix(prefix, "/") {
		prefix = "/" + prefix
	}
	return prefix
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h.open.Add(1)
	defer h.open.Add(-1)
	rec := h.begin(w, req)
	if rec.kind == kindStream {
		defer streams(req)()
	}
	defer rec.end() // also where the reverse proxy panics to cut an answer short
	h.route(rec, req)
}

// route checks the client, and chooses by prefix. It is no ServeMux: that redirects paths
// with "//", which paths below a Service's proxy may have.
func (h *Handler) route(rec *recorder, req *http.Request) {
	if h.o.Token != "" && !h.admit(rec, req) {
		return
	}
	if h.o.Filter != nil {
		if r := h.o.Filter.checkSource(req); r != nil {
			rec.refuse(http.StatusForbidden, *r)
			return
		}
	}
	switch p := req.URL.Path; {
	case h.static != nil && strings.HasPrefix(p, h.o.StaticPrefix):
		h.static.ServeHTTP(rec, req)
	case strings.HasPrefix(p, h.o.APIPrefix):
		h.serveAPI(rec, req)
	case p+"/" == h.o.APIPrefix, h.static != nil && p+"/" == h.o.StaticPrefix:
		http.Redirect(rec, req, p+"/", http.StatusMovedPermanently)
	default:
		rec.refuse(http.StatusNotFound, refusal{"prefix", fmt.Sprintf("the proxy serves the API below %s", h.o.APIPrefix)})
	}
}

// admit reports whether the client has the token. Otherwise it answers: after a delay to a guess, which a request
// without a token is not, because its client has yet to learn of the token. Until then the client holds no place of others.
func (h *Handler) admit(rec *recorder, req *http.Request) bool {
	client, guess := gateway.ClientOf(req.RemoteAddr), req.Header.Get("Authorization") != ""
	tooMany := guess && h.o.Failures.TooMany(client)
	if !tooMany && h.authenticated(req) {
		return true
	}
	defer httplimits.Yield(req.Context())()
	if tooMany {
		rec.Header().Set("Retry-After", strconv.Itoa(int(gateway.FailureDelay.Seconds())))
		rec.refuse(http.StatusTooManyRequests, refusal{"guesses", "the client sent too many wrong tokens: try again in some seconds"})
		return false
	}
	if guess && h.o.Failures != nil {
		h.o.Failures.Add(client)
		select {
		case <-time.After(gateway.FailureDelay):
		case <-req.Context().Done():
		}
	}
	rec.Header().Set("WWW-Authenticate", "Bearer")
	rec.refuse(http.StatusUnauthorized, refusal{"token", "the proxy requires the bearer token of its kubeconfig or of --token-file"})
	return false
}

func (h *Handler) serveAPI(rec *recorder, req *http.Request) {
	if !strings.HasPrefix(h.o.APIPrefix, "/api") {
		req = stripPrefix(req, strings.TrimSuffix(h.o.APIPrefix, "/"))
	}
	if h.o.Filter != nil {
		if r := h.o.Filter.checkTarget(req); r != nil {
			rec.refuse(http.StatusForbidden, *r)
			return
		}
	}
	h.api(rec, req)
}

// stripPrefix returns the request without the prefix in its path. The encoded path loses
// it too; where that spells the prefix in another way, it is encoded again.
func stripPrefix(req *http.Request, prefix string) *http.Request {
	if prefix == "" {
		return req
	}
	u := *req.URL
	u.Path = strings.TrimPrefix(u.Path, prefix)
	if raw, ok := strings.CutPrefix(u.RawPath, prefix); ok {
		u.RawPath = raw
	} else {
		u.RawPath = ""
	}
	out := *req
	out.URL = &u
	return &out
}

// authenticated compares hashes, so that neither length nor content shows in the time.
func (h *Handler) authenticated(req *http.Request) bool {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], h.token[:]) == 1
}
