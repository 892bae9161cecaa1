// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

// kubeconfig has one context.
func kubeconfig(server string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	return config
}
