// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// gatewayPorts lists the names of the gateway's ports; none without a gateway.
func (p *plan) gatewayPorts() []string {
	if !gateway.Enabled(p.bundle) {
		return nil
	}
	return []string{portGateway, portGatewayHealth}
}

// gateway returns the gateway, in either form. It listens on loopback.
func (p *plan) gateway() process.Spec {
	proc := component.LocalProcess(gateway.Component(p.bundle), component.LocalOptions{
		Path: p.gatewayPath,
		Extra: []component.Flag{
			component.PlainFlag("listen", net.JoinHostPort(loopback, p.port(portGateway))),
			component.PlainFlag("metrics-address", net.JoinHostPort(loopback, p.port(portGatewayHealth))),
			component.PlainFlag("tls-cert", p.PKI(progGateway+".crt")),
			component.PlainFlag("tls-key", p.PKI(progGateway+".key")),
			component.PlainFlag("kubeconfig", p.Kubeconfig(progGateway)),
			component.PlainFlag("shutdown-delay-duration", "0s"), // its endpoint stays
		},
	})
	// It asks the API server at its start.
	spec := p.bundlePart(progGateway, proc, &process.Probe{URL: p.url("http", portGatewayHealth, "/readyz")}, progAPIServer)
	if !gateway.IsStatic(p.bundle) {
		spec.NeedsFiles = []string{p.Token(progGateway)}
	}
	return spec
}

// gatewayPath maps the paths in the gateway's Pod.
func (p *plan) gatewayPath(path string) string {
	if path == gateway.RulesPath {
		return p.gatewayRules()
	}
	return p.localPath("")(path)
}

func (p *plan) gatewayRules() string { return filepath.Join(p.ConfigDir(), "gateway-rules.yaml") }

// writeGatewayFiles writes the certificate, the kubeconfig and the rules of the gateway.
func (p *plan) writeGatewayFiles(a authorities, now time.Time) error {
	if !gateway.Enabled(p.bundle) {
		return nil
	}
	request := gateway.CertificateRequest(p.bundle)
	request.DNSNames = append(request.DNSNames, "localhost")
	request.IPs = append(request.IPs, net.ParseIP(loopback))
	pair, err := a.cluster.Issue(pki.FromBundle(p.bundle), request, now)
	if err != nil {
		return err
	}
	if err := p.writePair(progGateway, pair); err != nil {
		return err
	}
	kubeconfig, err := p.tokenKubeconfig(progGateway, p.Token(progGateway))
	if gateway.IsStatic(p.bundle) {
		kubeconfig, err = gateway.StaticKubeconfig(p.bundle, a.cluster, p.serverURL(), now)
	}
	if err != nil {
		return err
	}
	if err := writeFile(p.Kubeconfig(progGateway), kubeconfig, 0o600); err != nil {
		return err
	}
	if p.bundle.Gateway.Rules == nil {
		return nil
	}
	rules, err := gateway.RuleFile(p.bundle)
	if err != nil {
		return err
	}
	return writeFile(p.gatewayRules(), rules, 0o600)
}

// gatewayAccess reaches the gateway on loopback; it is nil without a gateway.
func (p *plan) gatewayAccess() *check.Gateway {
	if !gateway.Enabled(p.bundle) {
		return nil
	}
	return &check.Gateway{
		Audience: p.bundle.Gateway.TokenAudiences[0], ServerName: gateway.ServerName(p.bundle), HasRules: p.bundle.Gateway.Rules != nil,
		Reach: func(ctx context.Context, use func(context.Context, string, []byte) error) error {
			ca, err := os.ReadFile(p.PKI("ca.crt"))
			if err != nil {
				return err
			}
			return use(ctx, net.JoinHostPort(loopback, p.port(portGateway)), ca)
		},
	}
}
