// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// ServerKubeconfig issues the server's client certificate and returns a
// kubeconfig that embeds the certificate, the key and the CA, so no separate
// certificate or key files remain on disk. The kubeconfig must be written with
// mode 0600 before the manifest of the static Pod: otherwise the Pod's
// FileOrCreate volume creates an empty file with mode 0644. ca is the cluster's
// CA and serverURL its API server.
func ServerKubeconfig(b *v1alpha1.Bundle, ca pki.KeyPair, serverURL string, now time.Time) ([]byte, error) {
	return ServerKubeconfigTrusting(b, ca, ca.CertPEM(), serverURL, now)
}

// ServerKubeconfigTrusting is [ServerKubeconfig] for a cluster whose CA is being
// rotated: trust has all CAs, in PEM, that may have signed the API server's
// certificate, and ca is the one that signs now.
func ServerKubeconfigTrusting(b *v1alpha1.Bundle, ca pki.KeyPair, trust []byte, serverURL string, now time.Time) ([]byte, error) {
	client, err := ca.Issue(pki.FromBundle(b), pki.Request{CommonName: ServerUser, Usages: pki.ClientAuth}, now)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", ServerUser, err)
	}
	return pki.Kubeconfig(pki.KubeconfigRequest{
		Cluster: "kubernetes", Server: serverURL, CA: trust, User: ServerUser, Client: client,
	})
}
