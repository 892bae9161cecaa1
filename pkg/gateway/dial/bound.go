// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// clean forgets a Pod without upstream connections. The caller holds p.mu.
func (p *portForward) clean(pod types.NamespacedName) {
	if pc := p.pods[pod]; pc != nil && len(pc.conns) == 0 && pc.dialing == 0 {
		delete(p.pods, pod)
	}
}

// closeIdle closes an upstream connection that no one uses, and tells whether there was one. The caller
// holds p.mu.
func (p *portForward) closeIdle() bool {
	for _, pc := range p.pods {
		for _, u := range pc.conns {
			if u.closeIfIdle() {
				return true
			}
		}
	}
	return false
}

func (p *portForward) fullError() error {
	return gateway.Errorf(gateway.ReasonBusy, "close connections, or use --via direct or --via ssh=USER@HOST, which need none of these",
		"%d connections to the API server forward ports, which is the limit for all Pods", p.o.PortForward.MaxUpstreams)
}

// metric is the number of upstream connections.
func (p *portForward) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_socks5_portforward_connections", Help: "Connections to the API server that forward ports of Pods, with those that are idle.",
	}, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(p.open)
	})
}
