// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

// APIOptions are those of "api".
type APIOptions struct {
	// ByAddress sends the address that was authorized, instead of the name that the client sent. The API then authorizes
	// the Pod, and not the Service before it.
	ByAddress bool
}

// apiPath dials through the subresource tunnelagents/portforward of the tunnel's API.
type apiPath struct {
	upgrade    *upgrader
	client     kubernetes.Interface
	o          APIOptions
	agents     agents
	life       context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup
}

func newAPI(o Options) (*apiPath, error) {
	if o.Config == nil {
		return nil, errors.New("api needs the configuration of an API server: pass a kubeconfig")
	}
	u, err := newUpgrader(o.Config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	p := &apiPath{upgrade: u, client: client, o: o.API, agents: agents{client: client, known: map[string]agentNames{}}}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// external tells that agents reach hosts outside of the cluster, too.
func (p *apiPath) external() bool { return true }

// Dial opens a connection through an agent of the destination's node if there is one, or else through any.
func (p *apiPath) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	if p.life.Err() != nil {
		return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)() //nolint:contextcheck // the dialer's own life, too
	const tries = 3                           // agents come and go
	var tried []string
	var last error
	for range tries {
		agent, err := p.agents.pick(ctx, to.Node, tried)
		if err != nil && last == nil {
			return nil, err
		}
		if err != nil {
			break
		}
		c, err := p.connect(ctx, agent, to)
		if err == nil {
			return c, nil
		}
		var gone *agentGoneError
		if last = err; !errors.As(err, &gone) || ctx.Err() != nil {
			break
		}
		p.agents.forget()
		tried = append(tried, agent)
	}
	return nil, last
}

// connect opens a connection through one agent.
func (p *apiPath) connect(ctx context.Context, agent string, to gateway.Destination) (gateway.Conn, error) {
	host, port := p.target(to)
	url := p.client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents", agent, tunnelv1alpha1.SubresourceConnect).
		Param("host", host).Param("port", strconv.Itoa(int(port))).URL()
	ws, err := p.upgrade.openWebSocket(ctx, url, wsconn.Protocol)
	if err != nil {
		return nil, connectError(err, agent, to)
	}
	conn := wsconn.New(ws)
	var mu sync.Mutex
	var broken error // why reading ended, if not in order
	c := &pumped{
		conn: &noting{Conn: conn, note: func(err error) { mu.Lock(); defer mu.Unlock(); broken = err }}, to: to,
		halfClose: conn.CloseWrite, down: p.life.Done(), end: func() {}, goroutines: &p.goroutines,
		lost: func() error {
			mu.Lock()
			defer mu.Unlock()
			return broken
		},
	}
	return c.start(), nil
}

// target is what the API gets: a name in full, so that it does not depend on the kubeconfig's namespace, or an address.
func (p *apiPath) target(to gateway.Destination) (host string, port uint16) {
	_, literal := netip.ParseAddr(to.Host)
	switch {
	case to.Addr.IsValid() && (p.o.ByAddress || to.Kind == gateway.KindExternal):
		return to.Addr.Addr().String(), to.Addr.Port()
	case to.Kind == gateway.KindService && literal != nil && !strings.Contains(to.Host, "."):
		return to.Host + "." + to.Namespace + ".svc", to.Port
	case to.Kind == gateway.KindExternal && literal != nil:
		return strings.TrimSuffix(to.Host, ".") + ".", to.Port // no Service has the name
	}
	return to.Host, to.Port
}

// Close closes all connections.
func (p *apiPath) Close() error {
	p.end()
	p.goroutines.Wait()
	return nil
}

// noting is a connection that notes an end that is not in order.
type noting struct {
	*wsconn.Conn
	note func(error)
}

// Read reads.
func (n *noting) Read(p []byte) (int, error) {
	c, err := n.Conn.Read(p)
	if errors.Is(err, wsconn.ErrReset) {
		n.note(err)
	}
	return c, err
}

// agentGoneError says that the API does not know an agent, or has no link to it.
type agentGoneError struct{ err *gateway.Error }

// Error returns what the API says.
func (e *agentGoneError) Error() string { return e.err.Error() }

// Unwrap returns the error with its reason.
func (e *agentGoneError) Unwrap() error { return e.err }

// connectError gives a reason to the refusal of a connection. The tunnel's API names it in a cause.
func connectError(err error, agent string, to gateway.Destination) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return gateway.Errorf(gateway.ReasonPathDown, "check that the API server answers: kubectl get --raw /readyz", "connect to %s through agent %s: %w", to, agent, err)
	}
	s := status.Status()
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field != tunnelv1alpha1.ConnectCauseField {
				continue
			}
			e := gateway.Errorf(gateway.Reason(c.Type), "", "%w", err)
			if e.Reason == gateway.ReasonPathDown {
				return &agentGoneError{e}
			}
			return e
		}
	}
	return statusError(err, agent, to)
}

// statusError gives a reason to a refusal of kube-apiserver, or of the tunnel's API before it looks at the destination.
func statusError(err error, agent string, to gateway.Destination) error {
	reason, hint := gateway.ReasonPathDown, "check that the tunnel's API is available: kubectl get apiservice v1alpha1.tunnel.fairlead.dev"
	switch {
	case apierrors.IsForbidden(err):
		reason, hint = gateway.ReasonDenied, "ask for the ClusterRole fairlead-tunnel-connect"
	case apierrors.IsUnauthorized(err):
		hint = "renew the credentials of the kubeconfig"
	case apierrors.IsTooManyRequests(err):
		reason, hint = gateway.ReasonBusy, "try again later"
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), agent):
		return &agentGoneError{gateway.Errorf(reason, "choose an agent that \"kubectl get tunnelagents\" shows as connected", "connect to %s: %w", to, err)}
	case apierrors.IsNotFound(err):
		hint = "set tunnelAPI.connect to true in the bundle"
	case apierrors.IsBadRequest(err):
		reason, hint = gateway.ReasonUnsupported, "use versions of fairlead and fairlead-apiserver that fit"
	}
	return gateway.Errorf(reason, hint, "connect to %s through agent %s: %w", to, agent, err)
}

// agentsKept is short, because agents come and go.
const agentsKept = 3 * time.Second
