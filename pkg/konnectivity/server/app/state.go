// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// stateLimits bound the listeners for state. Few programs ask, once a second each.
var stateLimits = func() httplimits.Limits {
	l := httplimits.Short
	l.Conns = 32
	return l
}()

// maxStateConnects is how many connections through agents a listener for state carries at a time, at most. fairlead-apiserver
// has limits of its own, which are lower.
const maxStateConnects = 4096

// stateSource is what the server knows of itself, and what its options add.
type stateSource struct {
	o      *Options
	s      *server.Server
	leases *leaseKeeper // nil without --enable-lease-controller
}

// State implements state.Source.
func (a *stateSource) State() state.State {
	st := a.s.State()
	st.Server.Host, _ = os.Hostname()
	st.Server.ProgramVersion, st.Server.Mode = version.Get().Version, a.o.Mode
	if a.o.agentCertificate != nil {
		if at := a.o.agentCertificate.NotAfter(); !at.IsZero() {
			at = at.UTC()
			st.Server.CertificateNotAfter = &at
		}
	}
	if a.leases != nil {
		st.Server.CountMode, st.Server.Count = state.CountByLeases, int(a.leases.valid.Load())
	}
	return st
}

// Connections implements state.Source.
func (a *stateSource) Connections(after int64, limit int) state.Connections {
	return a.s.Connections(after, limit)
}

// stateHandler answers the clients of the listeners for state.
func (o *Options) stateHandler(src *stateSource) http.Handler {
	h := state.Handler(src)
	if o.StateConnect {
		l := o.stateLimits()
		h = limitConnects(state.Connecting(h, src.s), connectPlaces(l.Most()))
	}
	return h
}

// connectPlaces returns how many of a listener's connections may go through agents. The others are for requests for state.
func connectPlaces(conns int) int {
	return min(maxStateConnects, max(conns-stateLimits.Conns, conns/2))
}

// limitConnects answers CONNECT requests with 503 while n others are served. A connection holds its place until it ends.
func limitConnects(next http.Handler, n int) http.Handler {
	places := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			httpconnect.Refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("limit: %d connections through agents are open here", n))
		}
	})
}

// stateLimits are the limits of these listeners. A connection through an agent takes a place until it ends.
func (o *Options) stateLimits() httplimits.Limits {
	l := stateLimits
	if o.StateConnect {
		l.Conns += maxStateConnects
	}
	return l
}

// serveState opens the listeners for state.
func (o *Options) serveState(ctx context.Context, m *server.Metrics, src *stateSource, client *apiclient.Client) error {
	if o.StateSocket != "" {
		l, err := server.ListenUnix(o.StateSocket, true)
		if err != nil {
			return fmt.Errorf("--state-socket: %w", err)
		}
		serveOn(ctx, "state socket", l, o.stateHandler(src), o.stateLimits())
	}
	if o.StatePort == 0 {
		return nil
	}
	cfg, err := o.tls(m, "state", tlsreload.Files{Cert: o.ClusterCert, Key: o.ClusterKey}, "http/1.1")
	if err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(o.StateServiceAccount, "/")
	auth := &apiclient.TokenAuth{Client: client, Namespace: namespace, ServiceAccount: name, Audience: o.StateAudience, Keep: o.TokenCache}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cmdutil.Address(o.stateHost(), o.StatePort))
	if err != nil {
		return fmt.Errorf("--state-port: %w", err)
	}
	serveTLSOn(ctx, "state port", l, cfg, authenticated(auth, klog.FromContext(ctx), o.stateHandler(src)), o.stateLimits())
	return nil
}

// stateHost is the address of the state port. The tunnel's API server asks the host that agents
// dial, so what agents cannot reach needs no listener either.
func (o *Options) stateHost() string { return cmp.Or(o.StateBindAddress, o.AgentBindAddress) }

// authenticated lets requests through whose bearer token is accepted. Refusals of one peer are
// logged once, and then counted.
func authenticated(auth *apiclient.TokenAuth, logger klog.Logger, next http.Handler) http.Handler {
	refused := logthrottle.New(logger, 0)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, err := auth.Check(r.Context(), r.RemoteAddr, token); err != nil {
			refused.Add(logthrottle.Event{Level: 1, Peer: r.RemoteAddr, Message: "Refused a request for state", Who: []any{"address", r.RemoteAddr}, Err: err})
			var public interface{ Public() string }
			status, text := http.StatusServiceUnavailable, "the token cannot be reviewed now"
			if errors.As(err, &public) {
				status, text = http.StatusUnauthorized, public.Public()
			}
			httpconnect.Refuse(w, r, status, text)
			return
		}
		next.ServeHTTP(w, r)
	})
}
