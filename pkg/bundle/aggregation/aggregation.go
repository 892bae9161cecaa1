// Package aggregation renders the front proxy of the API server's aggregation
// layer: the client certificate with which kube-apiserver proves to extension API
// servers that it speaks for a user, and the flags that say so.
//
// Start with [ClientRequest] and [APIServerFlags]. kubeadm sets up its own front
// proxy; these are for an API server that fairlead runs itself (AGG-10).
package aggregation

import (
	"path"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of the files below the PKI directory, as kubeadm has them.
const (
	CAFile   = "front-proxy-ca.crt"
	CertFile = "front-proxy-client.crt"
	KeyFile  = "front-proxy-client.key"
)

// CAName is the common name of the CA that serves the front proxy alone (AGG-31).
const CAName = "front-proxy-ca"

// APIServerFlags are kube-apiserver's flags for the aggregation layer. The
// header names are not configurable: the proxy sends exactly these whatever the
// flags say (AGG-06, AGG-07).
func APIServerFlags(b *v1alpha1.Bundle, pkiDir string) []component.Flag {
	b = b.Defaulted()
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
	if !ptr.Deref(b.Defaulted().Aggregation.EnableAggregatorRouting, false) {
		return nil
	}
	return []component.Flag{component.BoolFlag("enable-aggregator-routing", true)}
}

// ClientRequest is the certificate that kube-apiserver presents as the front proxy:
// its common name is the first allowed name. Let the CA named [CAName] issue it.
func ClientRequest(b *v1alpha1.Bundle) pki.Request {
	return pki.Request{CommonName: b.Defaulted().Aggregation.AllowedNames[0], Usages: pki.ClientAuth}
}
