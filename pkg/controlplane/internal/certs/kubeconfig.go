// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// Identity returns the client certificate of the kubeconfig's current
// context, or nil if the context authenticates in another way, and the URL of
// the API server.
func Identity(kubeconfig []byte) (cert *x509.Certificate, server string, err error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	if err := clientcmd.ConfirmUsable(*config, ""); err != nil {
		return nil, "", err
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil, "", errors.New("it has no current context")
	}
	server = config.Clusters[context.Cluster].Server
	if user := config.AuthInfos[context.AuthInfo]; len(user.ClientCertificateData) > 0 {
		cert, err = pki.ParseCert(user.ClientCertificateData)
	}
	return cert, server, err
}

// Trust returns the CAs embedded in a kubeconfig, or nil if it embeds none.
func Trust(kubeconfig []byte) []byte {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || clientcmd.ConfirmUsable(*config, "") != nil {
		return nil
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil
	}
	return config.Clusters[context.Cluster].CertificateAuthorityData
}

// clientCerts returns the client certificate of a kubeconfig's current context.
func clientCerts(kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("it has no current context with a user")
	}
	return config.AuthInfos[context.AuthInfo].ClientCertificateData, nil
}
