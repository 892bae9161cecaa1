// Package aggregation renders the front proxy of the API server's aggregation
// layer: the CA and client certificate with which kube-apiserver proves to
// extension API servers that it speaks for a user, and the flags that say so.
//
// Start with [NewFrontProxy] and [APIServerFlags]. kubeadm sets up its own front
// proxy; these are for an API server that fairlead runs itself (AGG-10).
package aggregation

import (
	"fmt"
	"path"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of the files below the PKI directory, as kubeadm has them, and of the CA.
const (
	CAFile   = "front-proxy-ca.crt"
	CertFile = "front-proxy-client.crt"
	KeyFile  = "front-proxy-client.key"

	caName = "front-proxy-ca"
)

// APIServerFlags are kube-apiserver's flags for the aggregation layer. The
// header names are not configurable: the proxy sends exactly these whatever the
// flags say (AGG-06, AGG-07).
func APIServerFlags(b *v1alpha1.Bundle, pkiDir string) []component.Flag {
	flags := []component.Flag{
		component.PathFlag("proxy-client-cert-file", path.Join(pkiDir, CertFile)),
		component.PathFlag("proxy-client-key-file", path.Join(pkiDir, KeyFile)),
		component.PathFlag("requestheader-client-ca-file", path.Join(pkiDir, CAFile)),
		component.PlainFlag("requestheader-allowed-names", strings.Join(b.Aggregation.AllowedNames, ",")),
		component.PlainFlag("requestheader-username-headers", "X-Remote-User"),
		component.PlainFlag("requestheader-group-headers", "X-Remote-Group"),
		component.PlainFlag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
		component.PlainFlag("requestheader-uid-headers", "X-Remote-Uid"),
	}
	return append(flags, RoutingFlags(b)...)
}

// RoutingFlags are kube-apiserver's flags for how aggregated requests are routed;
// none by default.
func RoutingFlags(b *v1alpha1.Bundle) []component.Flag {
	if !ptr.Deref(b.Aggregation.EnableAggregatorRouting, false) {
		return nil
	}
	return []component.Flag{component.BoolFlag("enable-aggregator-routing", true)}
}

// FrontProxy is the identity of the aggregation layer.
type FrontProxy struct {
	// CA is the front proxy's own, and Client is what kube-apiserver presents.
	CA, Client pki.KeyPair
}

// NewFrontProxy makes a CA that serves the front proxy alone, and the client
// certificate, whose common name is the first allowed name.
func NewFrontProxy(b *v1alpha1.Bundle, now time.Time) (FrontProxy, error) {
	cfg := pki.FromBundle(b)
	ca, err := pki.NewCA(cfg, caName, now)
	if err != nil {
		return FrontProxy{}, fmt.Errorf("make the front proxy's CA: %w", err)
	}
	name := v1alpha1.FrontProxyClient
	if len(b.Aggregation.AllowedNames) > 0 {
		name = b.Aggregation.AllowedNames[0]
	}
	client, err := ca.Issue(cfg, pki.Request{CommonName: name, Usages: pki.ClientAuth}, now)
	if err != nil {
		return FrontProxy{}, fmt.Errorf("make the front proxy's certificate: %w", err)
	}
	return FrontProxy{CA: ca, Client: client}, nil
}
