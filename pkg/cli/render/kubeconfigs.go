// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// kubeconfigs are the files that hold secrets. They come first, because each must
// exist before the kubelet starts the static Pod that reads it.
func (o *Options) kubeconfigs(b *v1alpha1.Bundle) ([]bundle.File, error) {
	server := ptr.Deref(b.Konnectivity.Enabled, true)
	second := ptr.Deref(b.Scheduler.Enabled, true) && b.Scheduler.Form == v1alpha1.FormStaticPod
	if !server && !second && !gateway.IsStatic(b) {
		return nil, errors.New("--ca-cert creates the kubeconfig of the Konnectivity server, but konnectivity.enabled is false: remove the flag")
	}
	ca, err := o.ca()
	if err != nil {
		return nil, err
	}
	var files []bundle.File
	if server {
		data, err := konnectivity.ServerKubeconfig(b, ca, o.Server, o.Now())
		if err != nil {
			return nil, fmt.Errorf("--ca-cert %s: %w", o.CACert, err)
		}
		files = append(files, bundle.File{Path: path.Join(hostDir, b.Konnectivity.Server.Kubeconfig), Mode: 0o600, Data: data})
	}
	if second {
		data, err := scheduler.StaticKubeconfig(b, ca, o.Server, o.Now())
		if err != nil {
			return nil, fmt.Errorf("--ca-cert %s: %w", o.CACert, err)
		}
		files = append(files, bundle.File{Path: path.Join(hostDir, b.Scheduler.Kubeconfig), Mode: 0o600, Data: data})
	}
	if gateway.IsStatic(b) {
		own, err := gatewayFiles(b, ca, o.Server, o.Now())
		if err != nil {
			return nil, fmt.Errorf("--ca-cert %s: %w", o.CACert, err)
		}
		files = append(files, own...)
	}
	return files, nil
}

// gatewayFiles are the kubeconfig and the serving certificate of the gateway's static Pod.
func gatewayFiles(b *v1alpha1.Bundle, ca pki.KeyPair, server string, now time.Time) ([]bundle.File, error) {
	kubeconfig, err := gateway.StaticKubeconfig(b, ca, server, now)
	if err != nil {
		return nil, err
	}
	pair, err := ca.Issue(pki.FromBundle(b), gateway.CertificateRequest(b), now)
	if err != nil {
		return nil, fmt.Errorf("issue the gateway's certificate: %w", err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	g := &b.Gateway
	return []bundle.File{
		{Path: path.Join(hostDir, g.Kubeconfig), Mode: 0o600, Data: kubeconfig},
		{Path: path.Join(hostDir, g.KeyFile), Mode: 0o600, Data: key},
		{Path: path.Join(hostDir, g.CertFile), Mode: 0o644, Data: pair.CertPEM()},
	}, nil
}

func (o *Options) ca() (pki.KeyPair, error) {
	cert, err := os.ReadFile(o.CACert)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("--ca-cert: %w", err)
	}
	key, err := os.ReadFile(o.CAKey)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("--ca-key: %w", err)
	}
	ca, err := pki.ParseKeyPair(cert, key)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("--ca-cert %s, --ca-key %s: %w", o.CACert, o.CAKey, err)
	}
	return ca, nil
}
