// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	FrontProxyCAFile   = "front-proxy-ca.crt"
	FrontProxyCertFile = "front-proxy-client.crt"
	FrontProxyKeyFile  = "front-proxy-client.key"
)

// FrontProxyCAName is the common name of the CA that signs the front proxy
// certificate and nothing else.
const FrontProxyCAName = "front-proxy-ca"

// frontProxyFlags are kube-apiserver's flags for the aggregation layer. The
// header names are not configurable: kube-apiserver always sends exactly these
// headers, whatever the flags say.
func frontProxyFlags(b *v1alpha1.Bundle, pkiDir string) []component.Flag {
	b = b.Defaulted()
	flags := []component.Flag{
		component.PathFlag("proxy-client-cert-file", path.Join(pkiDir, FrontProxyCertFile)),
		component.PathFlag("proxy-client-key-file", path.Join(pkiDir, FrontProxyKeyFile)),
		component.PathFlag("requestheader-client-ca-file", path.Join(pkiDir, FrontProxyCAFile)),
		component.PlainFlag("requestheader-allowed-names", strings.Join(b.Aggregation.AllowedNames, ",")),
		component.PlainFlag("requestheader-username-headers", "X-Remote-User"),
		component.PlainFlag("requestheader-group-headers", "X-Remote-Group"),
		component.PlainFlag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
		component.PlainFlag("requestheader-uid-headers", "X-Remote-Uid"),
	}
	return flags
}

// routingFlags are kube-apiserver's flags for how aggregated requests are routed;
// none by default.
func routingFlags(b *v1alpha1.Bundle) []component.Flag {
	if !ptr.Deref(b.Defaulted().Aggregation.EnableAggregatorRouting, false) {
		return nil
	}
	return []component.Flag{component.BoolFlag("enable-aggregator-routing", true)}
}

// FrontProxyRequest is the certificate that kube-apiserver presents as the front proxy:
// its common name is the first allowed name. Let the CA named [FrontProxyCAName] issue it.
func FrontProxyRequest(b *v1alpha1.Bundle) pki.Request {
	return pki.Request{CommonName: b.Defaulted().Aggregation.AllowedNames[0], Usages: pki.ClientAuth}
}
