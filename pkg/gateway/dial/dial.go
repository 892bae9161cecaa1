// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// Ways to dial, as New takes them.
const (
	ViaPortForward = "portforward"
	ViaDirect      = "direct"
	ViaNetwork     = "network"
	ViaSSH         = "ssh="
	ViaAPI         = "api"
)

// maxAttempts bounds how many endpoints of a Service one Dial tries.
const maxAttempts = 3

// Options of all paths. The zero value of each field has the default that it names.
type Options struct {
	// Config reaches the API server, for portforward and api. Its Dial and Proxy are used for
	// streams too.
	Config *rest.Config
	// Alternatives returns other destinations to try when one cannot be reached, such as
	// the other endpoints of a Service (resolve.Resolver has this method). Without it there
	// is no failover.
	Alternatives func(context.Context, gateway.Destination) ([]gateway.Destination, error)
	// APIServer is the host:port of the API server. Where a path does not lead to it, it is
	// dialed from this machine, as the kubeconfig's clients do.
	APIServer string
	// Timeout bounds one Dial, with all of its attempts. The default is 30 seconds.
	Timeout time.Duration
	// MaxConnections bounds the open connections and pending dials. The default is 1024.
	MaxConnections int
	// Logger logs changes of the path itself. The zero value logs nothing.
	Logger logr.Logger
	// Registry receives the metrics of the path; nil keeps none.
	Registry prometheus.Registerer

	PortForward PortForwardOptions
	API         APIOptions
	Direct      DirectOptions
	SSH         SSHOptions
}

// Dialer is a gateway.Dialer. Close closes its connections and waits for its goroutines.
type Dialer interface {
	gateway.Dialer
	io.Closer
}

// path opens connections in one way.
type path interface {
	Dialer
	// external reports whether the path reaches hosts outside of the cluster.
	external() bool
}

// New returns the Dialer for a way to dial: "portforward", "api", "direct", "network" or
// "ssh=[USER@]HOST[:PORT]".
func New(via string, o Options) (Dialer, error) {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxConnections = cmp.Or(o.MaxConnections, 1024)
	p, err := newPath(via, o)
	if err != nil {
		return nil, err
	}
	return &dialer{path: p, here: newNetwork(), lookUp: net.DefaultResolver.LookupNetIP, o: o, slots: make(chan struct{}, o.MaxConnections)}, nil
}

func newPath(via string, o Options) (path, error) {
	switch target, isSSH := strings.CutPrefix(via, ViaSSH); {
	case isSSH:
		return newSSH(target, o)
	case via == ViaPortForward:
		return newPortForward(o)
	case via == ViaDirect:
		return newDirect(o)
	case via == ViaNetwork:
		return newNetwork(), nil
	case via == ViaAPI:
		return newAPI(o)
	}
	return nil, gateway.Errorf(gateway.ReasonUnsupported, "use portforward, api, direct, network or ssh=USER@HOST", "there is no path %q", via)
}

// dialer adds to a path what all have in common.
type dialer struct {
	path
	here *network // for the API server, where the path does not lead to it
	// lookUp finds the addresses of the API server.
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)
	o      Options
	slots  chan struct{}
}

// Dial opens a connection. If it fails in a way that may be due to one endpoint, it tries
// others.
func (d *dialer) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	p := d.path
	if d.fromHere(to) {
		p = d.here
	} else if to.Kind == gateway.KindExternal && !d.external() {
		return nil, gateway.Errorf(gateway.ReasonUnsupported, "use --via direct or --via ssh=USER@HOST for hosts outside of the cluster",
			"port-forwarding reaches only Pods and nodes, and %s is neither", to)
	}
	select {
	case d.slots <- struct{}{}:
	default:
		return nil, gateway.Errorf(gateway.ReasonBusy, "close some of them, or raise the limit", "%d connections are open", d.o.MaxConnections)
	}
	release := func() { <-d.slots }
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	c, err := d.attempt(ctx, p, to)
	if err != nil {
		release()
		return nil, err
	}
	return &slotted{Conn: c, release: sync.OnceFunc(release)}, nil
}

// fromHere reports whether a destination is the API server and the path leads to Pods and nodes
// only, or needs an address, or leads to another loopback than that of the kubeconfig.
func (d *dialer) fromHere(to gateway.Destination) bool {
	if to.Kind != gateway.KindExternal || !gateway.SameAddress(to.Host, to.Port, d.o.APIServer) {
		return false
	}
	switch d.path.(type) {
	case *network:
		return true
	case *sshPath: // the proxy's own requests to the API server take it as well
		return false
	}
	return !d.external() || gateway.IsLoopback(to.Host)
}

// Close closes the path and its connections.
func (d *dialer) Close() error { return errors.Join(d.path.Close(), d.here.Close()) }

func (d *dialer) attempt(ctx context.Context, p path, to gateway.Destination) (gateway.Conn, error) {
	if p == d.here && !to.Addr.IsValid() {
		return d.apiServer(ctx, to)
	}
	c, others, first := d.first(ctx, p, to)
	if first == nil {
		return c, nil
	}
	if d.isUnknownThere(p, to, first) {
		return d.apiServer(ctx, to)
	}
	if !d.mayFailOver(to) || !oneEndpoint(first) {
		return nil, first
	}
	if others == nil {
		others = d.others(ctx, to)
	}
	return d.another(ctx, others, first)
}

// isUnknownThere reports whether a destination is the API server, and agents cannot resolve the name that the kubeconfig
// has for it. The bastion of an SSH path has to: the proxy's own requests take that path.
func (d *dialer) isUnknownThere(p path, to gateway.Destination, err error) bool {
	_, bastion := p.(*sshPath)
	return !bastion && !to.Addr.IsValid() && to.Kind == gateway.KindExternal && gateway.ReasonOf(err) == gateway.ReasonNotFound &&
		gateway.SameAddress(to.Host, to.Port, d.o.APIServer)
}

// apiServer dials the addresses of the API server's name, one after another.
func (d *dialer) apiServer(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	addrs, err := d.lookUp(ctx, "ip", to.Host)
	if err != nil || len(addrs) == 0 {
		return nil, gateway.Errorf(gateway.ReasonNotFound, "check the server of the kubeconfig", "find the address of the API server: %w",
			cmp.Or(err, errors.New("its name has none")))
	}
	var first error
	addrs = addrs[:min(len(addrs), maxAttempts)]
	for i, addr := range addrs {
		to.Addr = netip.AddrPortFrom(addr.Unmap(), to.Port)
		c, err := dialShare(ctx, d.here, to, len(addrs)-i)
		if err == nil {
			gateway.Dialed(ctx, to)
			return c, nil
		}
		err = asError(ctx, err, to)
		first = cmp.Or(first, err)
		if ctx.Err() != nil || !oneEndpoint(err) {
			break
		}
	}
	return nil, first
}

// asError gives a reason to errors that have none yet.
func asError(ctx context.Context, err error, to gateway.Destination) error {
	var known *gateway.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return gateway.Errorf(gateway.ReasonInternal, "", "dial %s: %w", to, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return gateway.Errorf(gateway.ReasonTimeout, "check that the destination answers", "dial %s: %w", to, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return gateway.Errorf(gateway.ReasonRefused, "check that something listens on this port", "dial %s: %w", to, err)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return gateway.Errorf(gateway.ReasonBusy, "close connections, or raise the limit of open files (ulimit -n)", "dial %s: %w", to, err)
	}
	return gateway.Errorf(gateway.ReasonInternal, "", "dial %s: %w", to, err)
}

// slotted gives back its slot when it is closed.
type slotted struct {
	gateway.Conn
	release func()
}

// Close closes the connection.
func (s *slotted) Close() error {
	defer s.release()
	return s.Conn.Close()
}

// Socket returns the socket that has the bytes of the connection as they are, if there is one: the kernel can copy
// these by itself.
func (s *slotted) Socket() (*net.TCPConn, bool) {
	if n, ok := s.Conn.(*networkConn); ok {
		return n.TCPConn, true
	}
	return nil, false
}

// target returns host:port of what a path that takes names dials. External names end with a
// dot, so that no search domain makes a name of the cluster out of them.
func target(to gateway.Destination) string {
	if to.Addr.IsValid() {
		return to.Addr.String()
	}
	return net.JoinHostPort(strings.TrimSuffix(to.Host, ".")+".", fmt.Sprint(to.Port))
}
