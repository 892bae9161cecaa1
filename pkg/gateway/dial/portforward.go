// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// PortForwardOptions are those of "portforward".
type PortForwardOptions struct {
	// IdleTimeout is how long the upstream connection of a Pod is kept without
	// connections. The default is 1 minute.
	IdleTimeout time.Duration
	// UnsharedConnections is how many connections to a Pod have an upstream connection each.
	// Beyond that they share them. The default is 16.
	UnsharedConnections int
	// MaxUpstreams bounds the upstream connections of all Pods. At the bound, connections share those that
	// their Pod has, and one that is idle is closed for another Pod. The default is 512.
	MaxUpstreams int
	// StreamsPerConnection bounds the connections that share an upstream connection. The
	// default is 32.
	StreamsPerConnection int
	// ReceiveBuffer is what is held for a client that does not read and shares its upstream
	// connection, in bytes. The default is 1 MiB. For one with a connection of its own it is 64 KiB at
	// most.
	ReceiveBuffer int
	// StallTimeout is how long a client with a full buffer may hold up other connections
	// to the same Pod. The default is 10 seconds.
	StallTimeout time.Duration
	// PingPeriod is how often the node is asked for an answer. An upstream connection on which nothing arrives
	// for two periods after that is closed. The default is 10 seconds, as that of kubectl port-forward.
	PingPeriod time.Duration
	// Linger is how long a destination may take to end its direction after its client has closed the connection. Then its
	// upstream connection ends, as soon as no other client uses it. The default is 2 seconds.
	Linger time.Duration
	// Settle is how long a dial waits for the report of a failure, because the protocol
	// reports no success. The default is 50 milliseconds.
	Settle time.Duration
}

func (o *PortForwardOptions) complete() {
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.UnsharedConnections = cmp.Or(o.UnsharedConnections, 16)
	o.MaxUpstreams = cmp.Or(o.MaxUpstreams, 512)
	o.StreamsPerConnection = cmp.Or(o.StreamsPerConnection, 32)
	o.ReceiveBuffer = cmp.Or(o.ReceiveBuffer, 1<<20)
	o.StallTimeout = cmp.Or(o.StallTimeout, 10*time.Second)
	o.PingPeriod = cmp.Or(o.PingPeriod, 10*time.Second)
	o.Linger = cmp.Or(o.Linger, 2*time.Second)
	o.Settle = cmp.Or(o.Settle, 50*time.Millisecond)
}

// portForward dials through pods/portforward.
type portForward struct {
	upgrade    *upgrader
	client     kubernetes.Interface
	o          Options
	life       context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup

	mu    sync.Mutex
	pods  map[types.NamespacedName]*podConns
	open  int // upstream connections of all Pods, and dials of such
	hosts map[string]hostPod
}

// podConns are the upstream connections of a Pod.
type podConns struct {
	conns   []*upstream
	dialing int           // dials under way
	dialed  chan struct{} // closed when one of them has ended
}

// hostPod is a Pod in a node's network, and until when that is assumed.
type hostPod struct {
	types.NamespacedName
	until time.Time
}

func newPortForward(o Options) (*portForward, error) {
	if o.Config == nil {
		return nil, errors.New("portforward needs the configuration of an API server: pass a kubeconfig")
	}
	o.PortForward.complete()
	u, err := newUpgrader(o.Config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	p := &portForward{upgrade: u, client: client, o: o, pods: map[types.NamespacedName]*podConns{}, hosts: map[string]hostPod{}}
	p.life, p.end = context.WithCancel(context.Background())
	if o.Registry != nil {
		if err := o.Registry.Register(p.metric()); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

func (p *portForward) external() bool { return false }

// Dial opens a connection to a port of the destination's Pod or, for a node, of a Pod in the
// node's network.
func (p *portForward) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	if to.Kind == gateway.KindNode {
		return p.dialNode(ctx, to)
	}
	if to.Pod.Name == "" {
		return nil, gateway.Errorf(gateway.ReasonUnsupported, "use --via direct or --via ssh=USER@HOST",
			"port-forwarding reaches only Pods, and the endpoint %s of %s is none", to.Addr, to)
	}
	return p.dialPod(ctx, to)
}

func (p *portForward) dialPod(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	const tries = 3 // an upstream may end, by its idle timeout or otherwise, while it is picked
	var last error
	for range tries {
		u, fresh, err := p.upstream(ctx, to.Pod)
		if err != nil {
			return nil, err
		}
		f, err := u.open(ctx, to, port(to.Addr, to.Port))
		if err == nil {
			return f, nil
		}
		if last = err; fresh && !u.doubtful() || !u.lost() && !u.doubtful() || ctx.Err() != nil {
			break
		}
		if u.doubtful() {
			p.doubt(to.Pod, u)
		}
	}
	return nil, last
}

func port(a netip.AddrPort, sent uint16) uint16 {
	if a.IsValid() {
		return a.Port()
	}
	return sent
}

// upstream returns a connection with a reserved place for a stream, and whether it is new.
func (p *portForward) upstream(ctx context.Context, pod types.NamespacedName) (*upstream, bool, error) {
	for {
		u, pc, wait, err := p.place(pod)
		switch {
		case u != nil || err != nil:
			return u, false, err
		case wait == nil:
			u, err := p.connect(ctx, pod, pc)
			return u, true, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// place reserves a place for a stream in a connection of a Pod. Without one, the caller waits for a connection
// that is being made or, if there is none to wait for, makes one, which counts from now on.
func (p *portForward) place(pod types.NamespacedName) (u *upstream, pc *podConns, wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return nil, nil, nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
	}
	if pc = p.pods[pod]; pc == nil {
		pc = &podConns{dialed: make(chan struct{})}
		p.pods[pod] = pc
	}
	unshared := len(pc.conns)+pc.dialing < p.o.PortForward.UnsharedConnections
	if u := pc.reserve(unshared); u != nil {
		return u, nil, nil, nil
	}
	if pc.dialing > 0 && !unshared { // all wait for the same new one, to share it
		return nil, nil, pc.dialed, nil
	}
	if p.open >= p.o.PortForward.MaxUpstreams && !p.closeIdle() {
		u := pc.reserve(false)
		switch {
		case u != nil:
			return u, nil, nil, nil
		case pc.dialing > 0:
			return nil, nil, pc.dialed, nil
		}
		p.clean(pod)
		return nil, nil, nil, p.fullError()
	}
	pc.dialing++
	p.open++
	return nil, pc, nil, nil
}

// reserve takes a place in the connection with the fewest streams or, if places are not to be shared
// yet, in one that has none. It returns nil if there is no such place.
func (pc *podConns) reserve(unshared bool) *upstream {
	pc.conns = slices.DeleteFunc(pc.conns, (*upstream).lost)
	slices.SortStableFunc(pc.conns, func(a, b *upstream) int { return a.load() - b.load() })
	for _, u := range pc.conns {
		if unshared && u.load() > 0 {
			return nil
		}
		if u.reserve() {
			return u
		}
	}
	return nil
}

func (p *portForward) connect(ctx context.Context, pod types.NamespacedName, pc *podConns) (*upstream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(p.life, func() { cancel(context.Canceled) }) //nolint:contextcheck // the dialer's own life, too
	defer stop()
	url := p.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	raw, err := p.upgrade.dial(ctx, url)
	var u *upstream
	if err == nil {
		u, err = newUpstream(pod.String(), raw, p.o.PortForward, &p.goroutines)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(pc.dialed)
	pc.dialed = make(chan struct{})
	pc.dialing--
	if err != nil {
		p.open--
		p.clean(pod)
		return nil, upgradeError(err, pod)
	}
	if !u.reserve() { // it has ended already
		u.close()
		p.open--
		p.clean(pod)
		return nil, u.lostError()
	}
	pc.conns = append(pc.conns, u)
	p.goroutines.Go(func() {
		<-u.down
		p.forget(pod, u)
	})
	if p.life.Err() != nil {
		u.close()
	}
	return u, nil
}

func (p *portForward) forget(pod types.NamespacedName, u *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	pc := p.pods[pod]
	if pc == nil {
		return
	}
	pc.conns = slices.DeleteFunc(pc.conns, func(o *upstream) bool { return o == u })
	p.clean(pod)
}

// Close closes all connections.
func (p *portForward) Close() error {
	p.end()
	p.mu.Lock()
	for _, pc := range p.pods {
		for _, u := range pc.conns {
			u.close()
		}
	}
	p.mu.Unlock()
	p.goroutines.Wait()
	return nil
}

func upgradeError(err error, pod types.NamespacedName) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case apierrors.IsForbidden(err):
		return gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("ask for a Role in namespace %q with verbs get and create on pods/portforward", pod.Namespace),
			"port-forward to Pod %s: %w", pod, err)
	case apierrors.IsNotFound(err):
		return gateway.Errorf(gateway.ReasonNotFound, "the Pod is gone or is being replaced: try again", "port-forward to Pod %s: %w", pod, err)
	case apierrors.IsUnauthorized(err):
		return gateway.Errorf(gateway.ReasonPathDown, "renew the credentials of the kubeconfig", "port-forward to Pod %s: %w", pod, err)
	case apierrors.IsBadRequest(err):
		return gateway.Errorf(gateway.ReasonHostUnreachable, "the Pod does not run: see kubectl describe pod", "port-forward to Pod %s: %w", pod, err)
	}
	return gateway.Errorf(gateway.ReasonPathDown, "check that the API server answers and that it reaches the kubelet: kubectl logs -n "+pod.Namespace+" "+pod.Name,
		"port-forward to Pod %s: %w", pod, err)
}
