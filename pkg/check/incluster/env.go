// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// NewEnv returns the Env of the cluster behind cfg in which b, which must be defaulted, is installed. ownIP is an address of this machine that the
// agents can reach; empty picks one.
func NewEnv(cfg *rest.Config, b *v1alpha1.Bundle, ownIP string) (*check.Env, error) {
	names := NamesOf(b)
	env := &check.Env{Config: cfg, SchedulerName: names.SchedulerName, Lease: names.Lease, SwitchedOff: names.SwitchedOff, Coexistence: check.CoexistenceOf(b)}
	if err := env.Complete(); err != nil {
		return nil, err
	}
	parts := NewParts(env.Client, names)
	env.Parts = parts
	env.OwnsIdentity, env.FormerIdentity = parts.OwnsIdentity, parts.FormerIdentity
	env.Leftovers = parts.Leftovers
	env.ServerMetrics = func(ctx context.Context) ([]byte, error) { return serverMetrics(ctx, cfg, env.Client, names) }
	env.Gateway = gatewayOf(cfg, env.Client, b)
	if env.HostIP = ownIP; ownIP == "" {
		env.HostIP = OwnAddress(cfg.Host)
	}
	return env, nil
}

// serverMetrics asks every konnectivity-server pod through the API server. That itself goes through the tunnel; see check's proof.go.
func serverMetrics(ctx context.Context, cfg *rest.Config, client kubernetes.Interface, names Names) ([]byte, error) {
	pods, err := client.CoreV1().Pods(names.Namespace).List(ctx, metav1.ListOptions{LabelSelector: names.ServerPods})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no pod in %s has label %s", names.Namespace, names.ServerPods)
	}
	var all []byte
	for _, pod := range pods.Items {
		if ended(&pod) {
			continue
		}
		text, err := podMetrics(ctx, cfg, client, &pod, names)
		if err != nil {
			return nil, fmt.Errorf("pod %s, port %s: %w", pod.Name, names.ServerPort, err)
		}
		all = append(append(all, text...), '\n')
	}
	return all, nil
}

// podMetrics asks one server. A port on loopback is out of the proxy's reach, but a forwarded port begins in the pod's network.
func podMetrics(ctx context.Context, cfg *rest.Config, client kubernetes.Interface, pod *corev1.Pod, names Names) (text []byte, err error) {
	if !names.ServerOnLoopback {
		return client.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, names.ServerPort, "metrics", nil).DoRaw(ctx)
	}
	port, err := strconv.ParseInt(names.ServerPort, 10, 32)
	if err != nil {
		return nil, err
	}
	err = check.Forward(ctx, cfg, client, pod, int32(port), func(ctx context.Context, address string) (err error) {
		text, err = MetricsFrom("http://" + address + "/metrics")(ctx)
		return err
	})
	return text, err
}

// MetricsFrom returns a reader of the metrics at url (http or https without verification of names is not offered: use a reachable http URL).
func MetricsFrom(address string) func(ctx context.Context) ([]byte, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context) ([]byte, error) {
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
}

// OwnAddress returns the address of this machine that traffic to the API server leaves from, or, when that is loopback, any other address that is
// neither loopback nor link-local; "" if there is none.
func OwnAddress(server string) string {
	if ip, err := routeTo(server); err == nil && ip.IsGlobalUnicast() {
		return ip.String()
	}
	return check.HostAddress()
}

// routeTo asks the kernel which source address it would use; no packet is sent.
func routeTo(server string) (net.IP, error) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return addr.IP, nil
	}
	return nil, errors.New("no local address")
}
