// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"reflect"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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

// OnlyRenewed reports whether two kubeconfigs differ in nothing but the embedded client
// certificate, its key and the embedded CAs. This project's server reads these again for
// each connection, and everything else only when it starts.
func OnlyRenewed(before, after []byte) bool {
	var parts [2]kubeconfigParts
	for i, data := range [][]byte{before, after} {
		var ok bool
		if parts[i], ok = withoutCertificates(data); !ok {
			return false
		}
	}
	return reflect.DeepEqual(parts[0], parts[1])
}

// kubeconfigParts are what the current context of a kubeconfig uses.
type kubeconfigParts struct {
	cluster clientcmdapi.Cluster
	user    clientcmdapi.AuthInfo
}

// withoutCertificates returns what the current context uses, without embedded certificates
// and keys; false if it lacks one of them.
func withoutCertificates(kubeconfig []byte) (kubeconfigParts, bool) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || clientcmd.ConfirmUsable(*config, "") != nil || config.Contexts[config.CurrentContext] == nil {
		return kubeconfigParts{}, false
	}
	context := config.Contexts[config.CurrentContext]
	parts := kubeconfigParts{*config.Clusters[context.Cluster], *config.AuthInfos[context.AuthInfo]}
	embedded := len(parts.cluster.CertificateAuthorityData) > 0 && len(parts.user.ClientCertificateData) > 0 && len(parts.user.ClientKeyData) > 0
	parts.cluster.CertificateAuthorityData, parts.user.ClientCertificateData, parts.user.ClientKeyData = nil, nil, nil
	return parts, embedded
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
