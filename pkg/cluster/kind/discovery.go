// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"net"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"sigs.k8s.io/yaml"
)

// # How nodes find the cluster that they join
//
// kind disables verification of the API server's CA when nodes join, and makes them
// depend on a signature that kube-controller-manager adds to the ConfigMap
// cluster-info some time after kubeadm init has finished: a node that asks too early
// retries after 5 s. Here the cluster's CA is known before the cluster exists, so
// each node gets a discovery file instead. It names the API server and the one CA to
// trust, and the node waits for nothing.

// discoveryPath is the path of the discovery file in a node.
const discoveryPath = "/kind/fairlead-discovery.kubeconfig"

// bootstrapToken is the well-known bootstrap token that kind makes kubeadm create
// (sigs.k8s.io/kind/pkg/cluster/internal/kubeadm/const.go).
const bootstrapToken = "abcdef.0123456789abcdef"

// discoveryFile returns a kubeconfig without credentials, as kubeadm requires it.
func (p *plan) discoveryFile(ca []byte) ([]byte, error) {
	host := p.loadBalancer()
	if host == "" {
		host = p.nodes()[0].name
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server: "https://" + net.JoinHostPort(host, strconv.Itoa(nodePort)), CertificateAuthorityData: ca,
	}
	config.AuthInfos["none"] = clientcmdapi.NewAuthInfo() // a context must name a user
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "none"}
	config.CurrentContext = "cluster"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the discovery file: %w", err)
	}
	return data, nil
}

// discoveryPatch replaces kind's method of discovery by the file.
func discoveryPatch() (string, error) {
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": kubeadmv1beta4.SchemeGroupVersion.String(), "kind": "JoinConfiguration",
		"discovery": map[string]any{
			"bootstrapToken":    nil, // null removes the field in a merge patch
			"file":              kubeadmv1beta4.FileDiscovery{KubeConfigPath: discoveryPath},
			"tlsBootstrapToken": bootstrapToken,
		},
	})
	return string(data), err
}
