// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Selection is the one egress selection that goes through the tunnel: traffic
// from the API server to nodes, Pods and Services.
const Selection = "cluster"

// ConfigFlag is kube-apiserver's flag for the egress selector configuration.
const ConfigFlag = "egress-selector-config-file"

// EgressSelectorConfiguration is kube-apiserver's egress selector configuration in YAML.
func EgressSelectorConfiguration(b *v1alpha1.Bundle) ([]byte, error) {
	return EgressSelectorConfigurationAt(b, nil)
}

// EgressSelectorConfigurationAt is the same with every path mapped, for a kube-apiserver
// that runs as a local process; nil keeps paths. Give the server the same
// mapping (component.LocalOptions.Path), so that both name the same socket.
func EgressSelectorConfigurationAt(b *v1alpha1.Bundle, mapPath func(string) string) ([]byte, error) {
	b = b.Defaulted()
	if mapPath == nil {
		mapPath = func(p string) string { return p }
	}
	data, err := yaml.Marshal(&apiserverv1beta1.EgressSelectorConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiserverv1beta1.SchemeGroupVersion.String(), Kind: "EgressSelectorConfiguration",
		},
		EgressSelections: []apiserverv1beta1.EgressSelection{{
			Name: Selection,
			Connection: apiserverv1beta1.Connection{
				ProxyProtocol: apiserverv1beta1.ProtocolType(b.Konnectivity.ProxyProtocol),
				Transport:     transport(b.Konnectivity.Transport, mapPath),
			},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the egress selector configuration: %w", err)
	}
	return data, nil
}

func transport(t v1alpha1.Transport, mapPath func(string) string) *apiserverv1beta1.Transport {
	if t.UDS != nil {
		return &apiserverv1beta1.Transport{UDS: &apiserverv1beta1.UDSTransport{UDSName: mapPath(t.UDS.Path)}}
	}
	tls := &apiserverv1beta1.TLSConfig{
		ClientCert: mapPath(t.TCP.ClientCert), ClientKey: mapPath(t.TCP.ClientKey), TLSServerName: t.TCP.TLSServerName,
	}
	if t.TCP.CABundle != "" {
		tls.CABundle = mapPath(t.TCP.CABundle)
	}
	return &apiserverv1beta1.Transport{TCP: &apiserverv1beta1.TCPTransport{URL: t.TCP.URL, TLSConfig: tls}}
}
