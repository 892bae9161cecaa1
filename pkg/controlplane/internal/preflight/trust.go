// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
)

// apiServerArgs returns the command and the arguments in kube-apiserver's
// manifest.
func (n *Node) apiServerArgs() []string {
	return append(append([]string{}, n.Container.Command...), n.Container.Args...)
}

// checkFrontProxyCA refuses a kube-apiserver that trusts the same CA for client
// certificates and for front proxies. A client certificate could then impersonate
// every user: each one without --requestheader-allowed-names, otherwise each one
// with an allowed common name.
func (n *Node) checkFrontProxyCA() error {
	args := n.apiServerArgs()
	client, header := kubelet.Flag(args, "client-ca-file"), kubelet.Flag(args, "requestheader-client-ca-file")
	if client == "" || header == "" {
		return nil
	}
	clientData, err := n.Read(client)
	if err != nil {
		n.Notef("could not compare the client CA with the request-header CA: %v", err)
		return nil
	}
	headerData, err := n.Read(header)
	if err != nil {
		n.Notef("could not compare the client CA with the request-header CA: %v", err)
		return nil
	}
	clientCAs, err := pki.ParseCerts(clientData)
	if err != nil {
		return fmt.Errorf("%s: %w", client, err)
	}
	headerCAs, err := pki.ParseCerts(headerData)
	if err != nil {
		return fmt.Errorf("%s: %w", header, err)
	}
	if err := pki.VerifyDistinctCAs(clientCAs, headerCAs); err != nil {
		names := kubelet.Flag(args, "requestheader-allowed-names")
		who := "every client certificate"
		if names != "" {
			who = "every client certificate with the common name " + names
		}
		return n.ignorable(FrontProxyCA, fmt.Errorf("--client-ca-file=%s and --requestheader-client-ca-file=%s: %w, because %s can impersonate every user",
			client, header, err, who))
	}
	return nil
}

// warnKubelets warns if kube-apiserver does not verify kubelets. With the tunnel,
// every agent is in the path between kube-apiserver and the kubelets, and only
// that flag lets kube-apiserver detect an agent that impersonates a kubelet.
func (n *Node) warnKubelets() {
	if !apiserver.VerifiesKubelets(n.apiServerArgs()) {
		n.Notef("%s", apiserver.UnverifiedKubelets)
	}
}
