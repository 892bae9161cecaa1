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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Defaults of the tunnel's programs, ours and upstream's.
const (
	DefaultAgentPort  = "8091"
	DefaultHealthPort = "8092"
	// DefaultAgentHealthPort is where agents serve health and metrics.
	DefaultAgentHealthPort = "8093"
	// DefaultLeaseNamespace and DefaultLeaseLabel are where servers keep their Leases.
	DefaultLeaseNamespace = metav1.NamespaceSystem
	DefaultLeaseLabel     = "k8s-app=konnectivity-server"
	// directLimit is how long a port may take that this machine may not reach at all.
	directLimit = 2 * time.Second
)

// probes are the sources that talk to programs.
func (c *collector) probes() []source {
	s := c.s
	out := []source{into(&s.APIServerMetrics, c.apiServerMetrics), into(&s.Leases, c.leases), c.aside}
	agents := 0
	for _, p := range slices.DeleteFunc(slices.Clone(s.Programs.Value), func(p Program) bool { return p.Hosted }) {
		switch {
		case p.Role == check.RoleAgent && agents < c.AgentMetrics:
			agents++
			out = append(out, func(ctx context.Context) { put(ctx, c, s.AgentMetrics, p, c.agentMetrics) })
		case p.Role == check.RoleServer && !c.metricsAside():
			out = append(out, func(ctx context.Context) { put(ctx, c, s.ServerMetrics, p, c.serverMetrics) })
		case p.Role == check.RoleScheduler && !p.Local:
			out = append(out, func(ctx context.Context) { put(ctx, c, s.SchedulerMetrics, p, c.replicaMetrics) })
		}
		if p.Role == check.RoleServer {
			out = append(out, func(ctx context.Context) { put(ctx, c, s.Shown, p, c.shown) })
		}
	}
	out = append(out, c.kubelets)
	if c.Brief {
		return out
	}
	out = append(out, c.crashes()...)
	out = append(out, into(&s.Reviews, c.reviews), into(&s.OtherReviews, c.otherReviews), into(&s.Bound, c.bound), into(&s.Node, c.hostFacts))
	if c.Before {
		out = append(out, into(&s.Preflight, c.preflight), into(&s.Blocked, c.blocked), into(&s.Missing, c.missing))
	}
	return out
}

// put stores one of several Facts of the same kind.
func put[T any](ctx context.Context, c *collector, m map[string]Fact[T], p Program, read func(context.Context, Program) (T, error)) {
	fact := inTime(ctx, func(ctx context.Context) (T, error) { return read(ctx, p) })
	c.mu.Lock()
	defer c.mu.Unlock()
	m[p.Name] = fact
}

func (c *collector) apiServerMetrics(ctx context.Context) (Metrics, error) {
	text, err := answer(ctx, c.client.Discovery().RESTClient().Get().AbsPath("/metrics"))
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
		text, err := inTime(ctx, c.Env.ServerMetrics).Get()
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
	texts, err := inTime(ctx, c.Env.SchedulerMetrics).Get()
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

func (c *collector) agentMetrics(ctx context.Context, p Program) (Metrics, error) {
	var text []byte
	err := c.toPort(ctx, p, p.Flag("health-server-port", DefaultAgentHealthPort), p.Flag("health-server-host", ""), func(ctx context.Context, address string) (err error) {
		text, err = httpGet(ctx, "http://"+address+"/metrics")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read its metrics: %w", err)
	}
	return parseMetrics(text, tunnelMetrics...)
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

// replicaMetrics asks a scheduler's Pod through the API server, which authenticates for us. While the tunnel is down it asks a Pod of this machine
// directly, if the kubeconfig has a client certificate: unlike a token, that can be shown to a program that is not verified.
func (c *collector) replicaMetrics(ctx context.Context, p Program) (Metrics, error) {
	port := p.Flag("secure-port", "10259")
	limited, cancel := context.WithTimeout(ctx, c.Limit/2)
	text, err := c.client.CoreV1().Pods(p.Pod.Namespace).ProxyGet("https", p.Pod.Name, port, "metrics", nil).DoRaw(limited)
	cancel()
	if err != nil {
		if text, ownErr := c.ownReplica(ctx, p, port); ownErr == nil {
			return parseMetrics(text, schedulerMetrics...)
		}
		return nil, fmt.Errorf("read its metrics: %w", c.explainTunnelDown(err))
	}
	return parseMetrics(text, schedulerMetrics...)
}

func (c *collector) ownReplica(ctx context.Context, p Program, port string) ([]byte, error) {
	if !c.here(p) || len(c.cfg.CertData) == 0 && c.cfg.CertFile == "" {
		return nil, errors.New("it is not asked directly")
	}
	shown := rest.AnonymousClientConfig(c.cfg)
	shown.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	shown.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertData: c.cfg.CertData, CertFile: c.cfg.CertFile, KeyData: c.cfg.KeyData, KeyFile: c.cfg.KeyFile}
	client, err := rest.HTTPClientFor(shown)
	if err != nil {
		return nil, err
	}
	host := p.Pod.Status.PodIP
	if bind := p.Flag("bind-address", ""); p.Pod.Spec.HostNetwork && isLoopback(bind) {
		host = bind
	}
	limited, cancel := context.WithTimeout(ctx, directLimit)
	defer cancel()
	return httpGetWith(limited, client, "https://"+net.JoinHostPort(host, port)+"/metrics")
}

// toPort calls use with an address at which a program's port answers.
func (c *collector) toPort(ctx context.Context, p Program, port, bind string, use func(context.Context, string) error) error {
	var direct error
	if host := c.directHost(p, bind); host != "" {
		limited, cancel := context.WithTimeout(ctx, directLimit)
		direct = use(limited, net.JoinHostPort(host, port))
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
	if err = check.Forward(ctx, c.cfg, c.client, p.Pod, int32(number), use); err == nil {
		return nil
	}
	return errors.Join(c.explainTunnelDown(err), direct)
}

// directHost is where this machine reaches a port without the API server; "" if it does not.
func (c *collector) directHost(p Program, bind string) string {
	switch {
	case p.HostIP == "":
		return ""
	case !isLoopback(bind) || p.Local:
		return p.HostIP
	case c.here(p) && p.Pod != nil && p.Pod.Spec.HostNetwork:
		if bind == "localhost" {
			return "127.0.0.1"
		}
		return bind
	}
	return ""
}

// here reports whether a program runs on this machine.
func (c *collector) here(p Program) bool {
	ip, err := netip.ParseAddr(p.HostIP)
	if err != nil {
		return false
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && own.Addr().Unmap() == ip.Unmap()
	})
}

// explainTunnelDown says that a call through the API server failed because the tunnel is down.
func (c *collector) explainTunnelDown(err error) error {
	if c.noAgent() || strings.Contains(strings.ToLower(err.Error()), "no agent available") {
		return fmt.Errorf("the tunnel is down, through which the API server reaches it: %w", err)
	}
	return err
}

// noAgent reports whether there should be agents and none is ready.
func (c *collector) noAgent() bool {
	agents := Of(c.s.Programs.Value, check.RoleAgent)
	return len(agents)+len(c.s.Workloads(check.RoleAgent)) > 0 && !slices.ContainsFunc(agents, func(p Program) bool { return p.Ready })
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback() || address == "localhost"
}

func httpGet(ctx context.Context, address string) ([]byte, error) {
	return httpGetWith(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, address)
}

func httpGetWith(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address, resp.Status)
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

// NodeReady reports whether the node's kubelet says that it is ready.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
