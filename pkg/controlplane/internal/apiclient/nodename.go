// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const kubeletConf = "/etc/kubernetes/kubelet.conf"

// NodeName returns the name under which the kubelet has registered: the one in its
// certificate, or else the machine's host name.
func NodeName(h nodefs.Host) string {
	if name := kubeletIdentity(h); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}

func kubeletIdentity(h nodefs.Host) string {
	data, err := h.Read(kubeletConf)
	if err != nil {
		return ""
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return ""
	}
	for _, user := range config.AuthInfos {
		cert := user.ClientCertificateData
		if len(cert) == 0 && user.ClientCertificate != "" {
			cert, _ = h.Read(user.ClientCertificate)
		}
		if parsed, err := pki.ParseCert(cert); err == nil {
			if name, ok := strings.CutPrefix(parsed.Subject.CommonName, "system:node:"); ok {
				return name
			}
		}
	}
	return ""
}
