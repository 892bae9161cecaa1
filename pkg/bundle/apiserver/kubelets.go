// SPDX-License-Identifier: Apache-2.0

package apiserver

import "strings"

// KubeletCAFlag is kube-apiserver's flag for the CA of kubelets' serving certificates.
// Without it kube-apiserver accepts any certificate from a kubelet.
const KubeletCAFlag = "kubelet-certificate-authority"

// UnverifiedKubelets says what is wrong without [KubeletCAFlag], and what to do.
const UnverifiedKubelets = "kube-apiserver does not verify the certificates of kubelets (--" + KubeletCAFlag + " is not set): " +
	"every agent can impersonate every kubelet, and read and change logs, exec and port-forward: " +
	"set serverTLSBootstrap: true in the configuration of every kubelet, approve the certificate signing requests of kubernetes.io/kubelet-serving, " +
	"then set --" + KubeletCAFlag + " to the cluster's CA"

// VerifiesKubelets reports whether a kube-apiserver with these arguments verifies kubelets' serving certificates.
func VerifiesKubelets(args []string) bool {
	file := ""
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || strings.ReplaceAll(name, "_", "-") != KubeletCAFlag {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		file = value
	}
	return file != ""
}
