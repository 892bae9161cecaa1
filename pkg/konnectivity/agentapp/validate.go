package agentapp

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/kube"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
)

// Validate checks the flags as the reference agent does.
func (o *Options) Validate() error {
	if (o.AgentCert == "") != (o.AgentKey == "") {
		return errors.New("--agent-cert and --agent-key must be set together")
	}
	if err := shell.CheckFiles(o.AgentCert, o.AgentKey, o.CaCert, o.ServiceAccountTokenPath, o.KubeconfigPath); err != nil {
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
	if o.SyncInterval > o.SyncIntervalCap {
		return fmt.Errorf("sync interval %v must be less than sync interval cap %v", o.SyncInterval, o.SyncIntervalCap)
	}
	if s := o.ServerCountSource; s != "" && s != "default" && s != "max" {
		return fmt.Errorf("--server-count-source must be one of '', 'default', 'max', got %v", s)
	}
	if o.CountServerLeases {
		if _, err := kube.ParseLabels(o.LeaseLabel); err != nil {
			return fmt.Errorf("--lease-label: %w", err)
		}
	}
	if err := validateIdentifiers(o.AgentIdentifiers); err != nil {
		return fmt.Errorf("agent address is invalid: %w", err)
	}
	return o.validateOwn()
}

func (o *Options) validateOwn() error {
	if o.graceErr != nil {
		return o.graceErr
	}
	if err := o.Link.Validate(); err != nil {
		return err
	}
	if o.Links < 0 || o.GracefulShutdownTimeout < 0 {
		return errors.New("--links and --graceful-shutdown-timeout must not be negative")
	}
	if o.Links > link.MaxLinks {
		return fmt.Errorf("--links must be at most %d", link.MaxLinks)
	}
	if err := shell.AtLeastOne(map[string]int{"max-pending-dials": o.MaxPendingDials, "max-connections": o.MaxConnections}); err != nil {
		return err
	}
	if o.DialTimeout <= 0 {
		return fmt.Errorf("--dial-timeout must be more than 0, not %v", o.DialTimeout)
	}
	_, err := o.policy()
	return err
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

// policy builds the rules for destinations. What the agent is known by may be on the
// loopback device: kubelets and the like on its own node are dialled by these names.
func (o *Options) policy() (agent.Policy, error) {
	var p agent.Policy
	var err error
	if p.Allow, err = agent.ParseRules(o.AllowDestinations); err != nil {
		return p, err
	}
	if p.Deny, err = agent.ParseRules(o.DenyDestinations); err != nil {
		return p, err
	}
	p.Self = map[string]bool{}
	v, _ := url.ParseQuery(o.AgentIdentifiers)
	for _, kind := range []string{"ipv4", "ipv6", "host"} {
		for _, id := range v[kind] {
			if a, err := netip.ParseAddr(id); err == nil {
				id = a.Unmap().String()
			}
			p.Self[strings.ToLower(id)] = true
		}
	}
	return p, nil
}
