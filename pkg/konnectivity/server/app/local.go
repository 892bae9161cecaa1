// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// localRules reads --local-destinations. Each must have a port: without one, all connections to a host, or to a whole
// network, would pass the agents by.
func (o *Options) localRules() ([]destinations.Rule, error) {
	for _, d := range o.LocalDestinations {
		if _, port, err := net.SplitHostPort(d); err != nil || port == "" {
			return nil, fmt.Errorf("--local-destinations, or %s: %q must be an address, a name or a CIDR with a port, such as 10.96.0.20:443", settings.LocalDestinations, d)
		}
	}
	rules, err := destinations.ParseRules(strings.Join(o.LocalDestinations, ","))
	if err != nil {
		return nil, fmt.Errorf("--local-destinations, or %s: %w", settings.LocalDestinations, err)
	}
	return rules, nil
}

// addLocal lets the server make the connections to --local-destinations itself: by an agent in this process.
func (o *Options) addLocal(s *server.Server, logger klog.Logger) error {
	rules, err := o.localRules()
	if err != nil || len(rules) == 0 {
		return err
	}
	policy := destinations.Policy{Allow: rules}
	a := agent.New(agent.Config{Policy: policy, Link: o.Link.Config(), Logger: logger}, agent.NewMetrics())
	near, far := net.Pipe()
	s.AddLocal(near, func(address string) bool { return isLocal(&policy, address) })
	go func() {
		if err := a.Serve(far); err != nil {
			logger.V(1).Info("The link for local destinations has ended", "err", err)
		}
	}()
	return nil
}

// isLocal reports whether a destination is in the list.
func isLocal(p *destinations.Policy, address string) bool {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return false
	}
	grant, err := p.CheckName(host, port)
	if err != nil {
		return false
	}
	return grant&destinations.GrantNamed != 0 || p.CheckAddr(address, grant) == nil
}
