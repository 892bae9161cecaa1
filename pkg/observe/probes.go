// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Defaults of the tunnel's programs, ours and upstream's.
const (
	DefaultAgentPort  = "8091"
	DefaultHealthPort = "8092"
	// directLimit is how long a port may take that this machine may not reach at all.
	directLimit = 2 * time.Second
	// maxKubelets bounds how many kubelets are asked.
	maxKubelets = 1000
)

// probes are the sources that talk to programs.
func (c *collector) probes() []source {
	s := c.s
	out := []source{into(&s.APIServerMetrics, c.apiServerMetrics), c.aside}
	for _, p := range s.Programs.Value {
		switch {
		case p.Role == check.RoleServer && !c.metricsAside():
			out = append(out, func(ctx context.Context) { put(ctx, c, s.ServerMetrics, p, c.serverMetrics) })
		case p.Role == check.RoleScheduler && !p.Local:
			out = append(out, func(ctx context.Context) { put(ctx, c, s.SchedulerMetrics, p, c.replicaMetrics) })
		}
		if p.Role == check.RoleServer {
			out = append(out, func(ctx context.Context) { put(ctx, c, s.Shown, p, c.shown) })
		}
		if p.Pod != nil && !p.Ready && p.Restarts > 0 && !c.Brief {
			out = append(out, func(ctx context.Context) { c.lastWords(ctx, p) })
		}
	}
	if c.Brief {
		return out
	}
	out = append(out, c.kubelets, into(&s.Reviews, c.reviews), into(&s.Bound, c.bound), into(&s.Node, c.hostFacts))
	if c.Before {
		out = append(out, into(&s.Preflight, c.preflight), into(&s.Blocked, c.blocked), into(&s.Missing, c.missing))
	}
	return out
}

// put stores one of several Facts of the same kind.
func put[T any](ctx context.Context, c *collector, m map[string]Fact[T], p Program, read func(context.Context, Program) (T, error)) {
	v, err := read(ctx, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	m[p.Name] = Fact[T]{v, err}
}

func (c *collector) apiServerMetrics(ctx context.Context) (Metrics, error) {
	text, err := c.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseMetrics(text, apiServerMetrics...)
}

func (c *collector) metricsAside() bool {
	return c.Env != nil && c.Env.ServerMetrics != nil && c.Env.ServerMetricsAside
}

// aside reads what the provider of a local cluster reads without the API server, which works while the tunnel is down.
func (c *collector) aside(ctx context.Context) {
	if c.metricsAside() {
		servers := Of(c.s.Programs.Value, check.RoleServer)
		text, err := c.Env.ServerMetrics(ctx)
		scrapes := check.SplitScrapes(text)
		for i, p := range servers {
			fact := Fact[Metrics]{Err: err}
			if err == nil && i < len(scrapes) {
				fact.Value, fact.Err = parseMetrics(scrapes[i], tunnelMetrics...)
			}
			c.mu.Lock()
			c.s.ServerMetrics[p.Name] = fact
			c.mu.Unlock()
		}
	}
	if c.Env == nil || c.Env.SchedulerMetrics == nil {
		return
	}
	texts, err := c.Env.SchedulerMetrics(ctx)
	for _, p := range Of(c.s.Programs.Value, check.RoleScheduler) {
		fact := Fact[Metrics]{Err: err}
		if text, ok := texts[p.Name]; ok {
			fact.Value, fact.Err = parseMetrics(text, schedulerMetrics...)
		} else if err == nil {
			fact.Err = errors.New("it does not answer")
		}
		c.mu.Lock()
		c.s.SchedulerMetrics[p.Name] = fact
		c.mu.Unlock()
	}
}

// serverMetrics asks a server at its node's address or, where the port is on loopback or out of reach, by port-forward.
func (c *collector) serverMetrics(ctx context.Context, p Program) (Metrics, error) {
	var text []byte
	err := c.toPort(ctx, p, p.Flag("health-port", DefaultHealthPort), p.Flag("health-bind-address", ""), func(ctx context.Context, address string) (err error) {
		text, err = httpGet(ctx, "http://"+address+"/metrics")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read its metrics: %w", err)
	}
	return parseMetrics(text, tunnelMetrics...)
}

// replicaMetrics asks a scheduler's Pod through the API server, which authenticates for us.
func (c *collector) replicaMetrics(ctx context.Context, p Program) (Metrics, error) {
	text, err := c.client.CoreV1().Pods(p.Pod.Namespace).ProxyGet("https", p.Pod.Name, p.Flag("secure-port", "10259"), "metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read its metrics: %w", err)
	}
	return parseMetrics(text, schedulerMetrics...)
}

// toPort calls use with an address at which a program's port answers.
func (c *collector) toPort(ctx context.Context, p Program, port, bind string, use func(context.Context, string) error) error {
	var direct error
	loopback := isLoopback(bind)
	if p.HostIP != "" && (!loopback || p.Local) {
		limited, cancel := context.WithTimeout(ctx, directLimit)
		direct = use(limited, net.JoinHostPort(p.HostIP, port))
		cancel()
		if direct == nil || p.Pod == nil {
			return direct
		}
	}
	if p.Pod == nil {
		return errors.New("its address is unknown")
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return fmt.Errorf("port %q: %w", port, err)
	}
	return errors.Join(check.Forward(ctx, c.cfg, c.client, p.Pod, int32(number), use), direct)
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback() || address == "localhost"
}

func httpGet(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// shown makes a TLS handshake with the port for agents. It verifies nothing, because the rules judge the certificate.
func (c *collector) shown(ctx context.Context, p Program) ([]certificate, error) {
	var out []certificate
	err := c.toPort(ctx, p, p.Flag("agent-port", DefaultAgentPort), p.Flag("agent-bind-address", ""), func(ctx context.Context, address string) error {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // as above
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if secure, ok := conn.(*tls.Conn); ok {
			out = secure.ConnectionState().PeerCertificates
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("TLS handshake with its port for agents: %w", err)
	}
	return out, nil
}

// kubelets asks each ready node's kubelet for its health, the way that logs and exec take. It does not where no agent could answer: every such
// call would be a failed dial in the API server's metrics, which checks count.
func (c *collector) kubelets(ctx context.Context) {
	agents := Of(c.s.Programs.Value, check.RoleAgent)
	if len(agents) > 0 && !slices.ContainsFunc(agents, func(p Program) bool { return p.Ready }) {
		return
	}
	const together = 32
	turns, done := make(chan struct{}, together), make(chan struct{}, maxKubelets)
	started := 0
	for i := range c.s.Nodes.Value {
		node := &c.s.Nodes.Value[i]
		if !NodeReady(node) || started == maxKubelets {
			continue
		}
		started++
		go func() {
			turns <- struct{}{}
			err := c.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("healthz").Do(ctx).Error()
			<-turns
			c.mu.Lock()
			c.s.Kubelets[node.Name] = err
			c.mu.Unlock()
			done <- struct{}{}
		}()
	}
	for range started {
		<-done
	}
}

// NodeReady reports whether the node's kubelet says that it is ready.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lastWords are the last lines of a container that ends again and again.
func (c *collector) lastWords(ctx context.Context, p Program) {
	lines := int64(5)
	text, err := c.client.CoreV1().Pods(p.Pod.Namespace).GetLogs(p.Pod.Name, &corev1.PodLogOptions{Previous: true, TailLines: &lines}).DoRaw(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Crashes[p.Name] = strings.TrimSpace(string(text))
}
