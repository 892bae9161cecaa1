// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
)

// Validate checks the flags as upstream's agent does.
func (o *Options) Validate() error {
	if (o.AgentCert == "") != (o.AgentKey == "") {
		return errors.New("--agent-cert and --agent-key must be set together")
	}
	if err := cmdutil.CheckFiles(map[string]string{
		"agent-cert": o.AgentCert, "agent-key": o.AgentKey, "ca-cert": o.CaCert,
		"service-account-token-path": o.ServiceAccountTokenPath, "kubeconfig": o.KubeconfigPath,
	}); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		port int
	}{{"proxy server", o.ProxyServerPort}, {"health server", o.HealthServerPort}, {"admin server", o.AdminServerPort}} {
		if p.port <= 0 {
			return fmt.Errorf("%s port %d must be greater than 0", p.name, p.port)
		}
	}
	if o.XfrChannelSize <= 0 {
		return fmt.Errorf("channel size %d must be greater than 0", o.XfrChannelSize)
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		return errors.New("if --enable-contention-profiling is set, --enable-profiling must also be set")
	}
	if o.Agent.SyncInterval > o.Agent.SyncIntervalCap {
		return fmt.Errorf("sync interval %v must be less than sync interval cap %v", o.Agent.SyncInterval, o.Agent.SyncIntervalCap)
	}
	if s := o.ServerCountSource; s != "" && s != "default" && s != "max" {
		return fmt.Errorf("--server-count-source must be one of '', 'default', 'max', got %v", s)
	}
	if o.CountServerLeases {
		if _, err := apiclient.ParseLabels(o.LeaseLabel); err != nil {
			return fmt.Errorf("--lease-label: %w", err)
		}
	}
	if err := validateIdentifiers(o.Agent.Identifiers); err != nil {
		return fmt.Errorf("agent address is invalid: %w", err)
	}
	return o.validateOwn()
}

func validateIdentifiers(query string) error {
	v, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for kind := range v {
		switch kind {
		case "ipv4", "ipv6", "cidr", "host", "default-route":
		default:
			return fmt.Errorf("unknown address type: %s", kind)
		}
	}
	return nil
}

// warnOfIdentifiers says which identifiers match no destination. They are no errors: upstream
// accepts them, and strategies that do not use them work.
func (o *Options) warnOfIdentifiers(logger logr.Logger) {
	v, _ := url.ParseQuery(o.Agent.Identifiers)
	for _, problem := range identifiers.Problems(v) {
		logger.Error(nil, "An identifier matches no destination: correct --agent-identifiers", "identifier", problem)
	}
}

// policy builds the rules for destinations. What the agent is known by may be on the
// loopback device: kubelets and the like on its own node are dialed by these names.
func (o *Options) policy() (destinations.Policy, error) {
	var p destinations.Policy
	var err error
	if p.Allow, err = destinations.ParseRules(o.AllowDestinations); err != nil {
		return p, err
	}
	if p.Deny, err = destinations.ParseRules(o.DenyDestinations); err != nil {
		return p, err
	}
	p.Self = map[string]bool{}
	v, _ := url.ParseQuery(o.Agent.Identifiers)
	for _, kind := range []string{"ipv4", "ipv6", "host"} {
		for _, id := range v[kind] {
			p.Self[identifiers.Canonical(id)] = true
		}
	}
	return p, nil
}
