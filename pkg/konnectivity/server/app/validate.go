// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// Validate checks the flags as upstream's server does.
func (o *Options) Validate() error {
	for _, check := range []func() error{o.validateFiles, o.validateListeners, o.validateAuth, o.validateRest, o.validateOwn} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) validateFiles() error {
	pairs := []struct{ name, cert, key string }{{"server", o.ServerCert, o.ServerKey}, {"cluster", o.ClusterCert, o.ClusterKey}}
	for _, p := range pairs {
		if (p.cert == "") != (p.key == "") {
			return fmt.Errorf("--%[1]s-cert and --%[1]s-key must be set together", p.name)
		}
	}
	return cmdutil.CheckFiles(map[string]string{
		"server-cert": o.ServerCert, "server-key": o.ServerKey, "server-ca-cert": o.ServerCaCert,
		"cluster-cert": o.ClusterCert, "cluster-key": o.ClusterKey, "cluster-ca-cert": o.ClusterCaCert, "kubeconfig": o.KubeconfigPath,
	})
}

func (o *Options) validateListeners() error {
	for _, check := range []func() error{o.validateFrontend, o.validatePorts} {
		if err := check(); err != nil {
			return err
		}
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		return errors.New("if --enable-contention-profiling is set, --enable-profiling must also be set")
	}
	return nil
}

func (o *Options) validateFrontend() error {
	if o.Mode != "grpc" && o.Mode != "http-connect" {
		return fmt.Errorf("mode must be set to either 'grpc' or 'http-connect' not %q", o.Mode)
	}
	if o.UdsName != "" {
		if o.ServerPort != 0 {
			return fmt.Errorf("server port should be set to 0 not %d for UDS", o.ServerPort)
		}
		if len(o.AllowedClientNames) > 0 {
			return errors.New("--server-allowed-client-names, or " + settings.AllowedClientNames + ", is for clients over TCP: leave it out with --uds-name")
		}
		if o.ServerCert != "" || o.ServerKey != "" || o.ServerCaCert != "" {
			return errors.New("server cert, key and ca cert should not be set for UDS")
		}
	} else if o.ServerCaCert == "" {
		return errors.New("server ca cert must be set when in TCP mode (uds-name is empty)")
	}
	return nil
}

func (o *Options) validatePorts() error {
	ports := []struct {
		name string
		port int
	}{{"server", o.ServerPort}, {"agent", o.AgentPort}, {"admin", o.AdminPort}, {"health", o.HealthPort}}
	for _, p := range ports {
		if p.port > 49151 {
			return fmt.Errorf("please do not try to use ephemeral port %d for the %s port", p.port, p.name)
		}
		if p.port < 1024 && !(p.name == "server" && o.UdsName != "") {
			return fmt.Errorf("please do not try to use reserved port %d for the %s port", p.port, p.name)
		}
	}
	return nil
}

// usesTokens reports whether agents prove themselves by token.
func (o *Options) usesTokens() bool {
	return o.AgentNamespace != "" || o.AgentServiceAccount != "" || o.AuthenticationAudience != ""
}

func (o *Options) validateAuth() error {
	if !o.usesTokens() {
		return nil
	}
	if o.ClusterCaCert != "" {
		return errors.New("--cluster-ca-cert can not be used when agent authentication is enabled")
	}
	for _, f := range []struct{ name, v string }{{"agent-namespace", o.AgentNamespace}, {"agent-service-account", o.AgentServiceAccount}, {"authentication-audience", o.AuthenticationAudience}} {
		if f.v == "" {
			return fmt.Errorf("--%s cannot be empty when agent authentication is enabled", f.name)
		}
	}
	return nil
}

func (o *Options) validateRest() error {
	if _, err := server.ParseStrategies(o.ProxyStrategies); err != nil {
		return fmt.Errorf("invalid proxy strategies: %w", err)
	}
	if o.XfrChannelSize <= 0 {
		return fmt.Errorf("channel size %d must be greater than 0", o.XfrChannelSize)
	}
	if _, err := tlsVersion(o.TLSMinVersion); err != nil {
		return err
	}
	if _, err := cipherSuites(o.CipherSuites); err != nil {
		return err
	}
	if o.EnableLeaseController {
		if _, err := apiclient.ParseLabels(o.LeaseLabel); err != nil {
			return err
		}
	}
	if o.GracefulShutdownTimeout < 0 || o.BackendDialTimeout < 0 {
		return errors.New("graceful-shutdown-timeout and backend-dial-timeout must be >= 0")
	}
	return nil
}

// validateOwn checks the flags that upstream's server does not have.
func (o *Options) validateOwn() error {
	if err := errors.Join(o.graceErr, o.stateErr); err != nil {
		return err
	}
	if err := o.validateState(); err != nil {
		return err
	}
	if _, err := o.localRules(); err != nil {
		return err
	}
	if err := o.Link.Validate(); err != nil {
		return err
	}
	if err := o.validateClaims(); err != nil {
		return err
	}
	if err := cmdutil.AtLeastOne(map[string]int{"links-per-agent": o.LinksPerAgent, "max-pending-dials": o.MaxPendingDials,
		"max-connections": o.MaxConnections, "max-connections-per-agent": o.MaxPerAgent, "max-agents": o.MaxAgents}); err != nil {
		return err
	}
	if o.LinksPerAgent > link.MaxLinks {
		return fmt.Errorf("--links-per-agent must be at most %d", link.MaxLinks)
	}
	if o.AgentWait < 0 || o.TokenCache < 0 || o.MaxPerOwner < 0 {
		return errors.New("--agent-wait, --token-cache and --max-links-per-owner must not be negative")
	}
	if o.TokenReviewInterval < 0 || o.TokenReviewInterval > 0 && o.TokenReviewInterval < time.Second {
		return errors.New("--token-review-interval must be 0 or at least 1s")
	}
	return nil
}

func (o *Options) validateState() error {
	if o.StatePort == 0 {
		return nil
	}
	if o.StatePort < 1024 || o.StatePort > 49151 {
		return fmt.Errorf("--state-port, or %s, must be 0 or between 1024 and 49151, not %d", settings.StatePort, o.StatePort)
	}
	namespace, name, ok := strings.Cut(o.StateServiceAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("--state-service-account, or %s, must be NAMESPACE/NAME with --state-port, not %q", settings.StateServiceAccount, o.StateServiceAccount)
	}
	if o.StateAudience == "" {
		return errors.New("--state-audience must not be empty with --state-port: name the audience of the tokens")
	}
	return nil
}

func (o *Options) validateClaims() error {
	if c := o.AgentClaims; c != "any" && c != "node" && c != "certificate" {
		return fmt.Errorf("--agent-claims, or %s, must be any, node or certificate, not %q", settings.AgentClaims, c)
	}
	if o.AgentClaims == "node" && !o.usesTokens() && o.AgentClaims != os.Getenv(settings.AgentClaims) {
		return errors.New("--agent-claims=node needs --agent-namespace, --agent-service-account and --authentication-audience: it is tokens that are bound to nodes")
	}
	_, err := prefixes(o.NonNodeCIDRs)
	return err
}

// prefixes parses the ranges of --non-node-cidrs.
func prefixes(cidrs []string) (out []netip.Prefix, err error) {
	for _, c := range cidrs {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			return nil, fmt.Errorf("--non-node-cidrs, or %s: %q is not a range such as 10.96.0.0/12: %w", settings.NonNodeCIDRs, c, err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func tlsVersion(name string) (uint16, error) {
	versions := map[string]uint16{"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	v, ok := versions[name]
	if !ok {
		return 0, fmt.Errorf("unsupported TLS version %q, supported values are: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13", name)
	}
	return v, nil
}

func cipherSuites(names []string) (ids []uint16, err error) {
next:
	for _, name := range names {
		for _, c := range tls.CipherSuites() {
			if c.Name == name {
				ids = append(ids, c.ID)
				continue next
			}
		}
		return nil, fmt.Errorf("cipher suite %s not supported, doesn't exist or considered as insecure", name)
	}
	return ids, nil
}
