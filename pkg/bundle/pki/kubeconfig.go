// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// KubeconfigRequest describes a kubeconfig with one cluster and one user.
type KubeconfigRequest struct {
	// Cluster is the name of the cluster's entry, Server its URL, CA its CA in PEM.
	Cluster, Server string
	CA              []byte
	// User is the name of the user's entry and Client its certificate.
	User   string
	Client KeyPair
	// Context is the name of the current context. Default: <User>@<Cluster>.
	Context string
}

// Kubeconfig encodes a kubeconfig with all certificates embedded. It holds a
// private key: write it with mode 0600.
func Kubeconfig(r KubeconfigRequest) ([]byte, error) {
	key, err := r.Client.KeyPEM()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", r.User, err)
	}
	context := r.Context
	if context == "" {
		context = r.User + "@" + r.Cluster
	}
	config := clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config",
		Clusters: []clientcmdv1.NamedCluster{{Name: r.Cluster,
			Cluster: clientcmdv1.Cluster{Server: r.Server, CertificateAuthorityData: r.CA}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: r.User,
			AuthInfo: clientcmdv1.AuthInfo{ClientCertificateData: r.Client.CertPEM(), ClientKeyData: key}}},
		Contexts: []clientcmdv1.NamedContext{{Name: context,
			Context: clientcmdv1.Context{Cluster: r.Cluster, AuthInfo: r.User}}},
		CurrentContext: context,
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", r.User, err)
	}
	return data, nil
}
