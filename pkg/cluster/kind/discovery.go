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
// kind has them trust whoever answers, and ask for a signature that the controller
// manager adds to the ConfigMap cluster-info some time after kubeadm init has ended:
// a node that asks too early asks again after 5 s. The cluster's CA is known before
// there is a cluster, so each node gets a discovery file instead, which names the
// API server and the one CA to trust, and waits for nothing.

// discoveryPath is the discovery file in a node.
const discoveryPath = "/kind/fairlead-discovery.kubeconfig"

// bootstrapToken is the well-known one that kind has kubeadm make
// (sigs.k8s.io/kind/pkg/cluster/internal/kubeadm/const.go).
const bootstrapToken = "abcdef.0123456789abcdef"

// discoveryFile is a kubeconfig without credentials, as kubeadm wants it.
func (p *plan) discoveryFile(ca []byte) ([]byte, error) {
	host := p.loadBalancer()
	if host == "" {
		host = p.nodes()[0].name
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server: "https://" + net.JoinHostPort(host, strconv.Itoa(nodePort)), CertificateAuthorityData: ca,
	}
	config.AuthInfos["nobody"] = clientcmdapi.NewAuthInfo() // a context needs one
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "nobody"}
	config.CurrentContext = "cluster"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the discovery file: %w", err)
	}
	return data, nil
}

// discoveryPatch takes kind's way of discovery out and puts the file in.
func discoveryPatch() (string, error) {
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": kubeadmv1beta4.SchemeGroupVersion.String(), "kind": "JoinConfiguration",
		"discovery": map[string]any{
			"bootstrapToken":    nil, // a merge patch removes it so
			"file":              kubeadmv1beta4.FileDiscovery{KubeConfigPath: discoveryPath},
			"tlsBootstrapToken": bootstrapToken,
		},
	})
	return string(data), err
}
