// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// CheckEnv implements cluster.Provider.
func (p *Provider) CheckEnv(_ context.Context, name string, config *rest.Config) (*check.Env, error) {
	l, err := NewLayout(p.root, name)
	if err != nil {
		return nil, err
	}
	state, err := l.readState()
	if err != nil {
		return nil, err
	}
	pl := &plan{Layout: l, state: state}
	if config.Host != pl.serverURL() {
		return nil, nil // the name is ours, but the kubeconfig points to another cluster
	}
	if pl.bundle, err = l.StoredBundle(); err != nil {
		return nil, err
	}
	return pl.checkEnv(config), nil
}

func (p *plan) checkEnv(config *rest.Config) *check.Env {
	parts := &parts{plan: p, supervisor: process.NewClient(p.SupervisorSocket()), config: config}
	e := p.bundle.Scheduler.LeaderElection
	off := map[string]string{}
	incluster.SwitchOffLease(off, p.bundle)
	if !p.tunnel() {
		off["tunnel"] = "the cluster's bundle has konnectivity.enabled: false"
	}
	fault := p.state.addressFault(p.Name)
	switch {
	case !p.tunnel():
	case fault != nil:
		off["tunnel"] = "the nodes cannot be reached: " + fault.Error()
	case !p.state.hasNetwork():
		off["gateway-access"] = "the cluster was started without a network, and a Service's endpoint must not be loopback"
		for _, id := range []string{"tunnel-node-proxy", "tunnel-service-proxy", "tunnel-webhook"} {
			off[id] = "the cluster was started without a network, and kube-apiserver does not proxy to loopback addresses"
		}
	}
	if p.state.Schedulers == 0 {
		off["scheduler"] = "the cluster's bundle has scheduler.enabled: false"
	}
	return &check.Env{
		SwitchedOff:   off,
		AddressFault:  fault,
		Config:        config,
		Cluster:       cluster.ContextName(p.Name),
		Bundle:        p.bundle,
		SchedulerName: scheduler.ProfileNames(p.bundle)[0],
		Coexistence:   check.CoexistenceOf(p.bundle),
		Lease:         types.NamespacedName{Namespace: e.LeaseNamespace, Name: e.LeaseName},
		OwnsIdentity:  parts.ownsIdentity,
		IdentityLimit: "schedulers on this machine are not told apart: events name the host alone",
		Parts:         parts,
		Leftovers:     parts.leftovers,
		ServerMetrics: func(ctx context.Context) ([]byte, error) {
			return get(ctx, p.url("http", portTunnelHealth, "/metrics"), http.DefaultClient)
		},
		ServerMetricsAside: true,
		APIServerArgs: func(context.Context) (map[string][]string, error) {
			return map[string][]string{"kube-apiserver": p.apiServer().Args}, nil
		},
		Gateway:          p.gatewayAccess(),
		Programs:         parts.programs,
		SchedulerMetrics: parts.allSchedulerMetrics,
		HostIP:           p.state.HostIP,
		Probe: check.Probe{
			LogWant:        podLogWords,
			PortForwardRaw: true,
		},
	}
}

// get reads a URL.
func get(ctx context.Context, url string, client *http.Client) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return body, err
}
