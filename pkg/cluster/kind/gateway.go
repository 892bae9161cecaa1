// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// gatewayFiles are what a control plane node needs for the gateway's static Pod: none in the
// other form.
func (p *plan) gatewayFiles(ca pki.KeyPair, serverURL string, out *bundle.Output, now time.Time) ([]bundle.File, error) {
	if !gateway.IsStatic(p.bundle) {
		return nil, nil
	}
	kubeconfig, err := gateway.StaticKubeconfig(p.bundle, ca, serverURL, now)
	if err != nil {
		return nil, err
	}
	pair, err := ca.Issue(pki.FromBundle(p.bundle), gateway.CertificateRequest(p.bundle), now)
	if err != nil {
		return nil, err
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	g := &p.bundle.Gateway
	return append([]bundle.File{
		{Path: g.Kubeconfig, Mode: 0o600, Data: kubeconfig},
		{Path: g.KeyFile, Mode: 0o600, Data: key},
		{Path: g.CertFile, Mode: 0o644, Data: pair.CertPEM()},
	}, out.GatewayFiles...), nil
}

// gatewayReady requires all of the gateway's Pods to be ready.
func (p *plan) gatewayReady(ctx context.Context, client kubernetes.Interface) (string, error) {
	return p.settled(ctx, client, func(ctx context.Context, client kubernetes.Interface) (part, error) {
		c, form := gateway.Component(p.bundle), p.bundle.Gateway.Form
		want := int(c.Replicas)
		if gateway.IsStatic(p.bundle) {
			want = p.state.ControlPlanes
		}
		return p.count(ctx, client, c, form, want)
	})
}
