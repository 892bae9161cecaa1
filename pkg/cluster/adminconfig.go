// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// StoreAdminKubeconfig writes AdminKubeconfig.
func (h Home) StoreAdminKubeconfig(data []byte) error {
	return fsutil.WriteFile(h.AdminKubeconfig(), data, 0o600)
}

// AdminKubeconfigData is the administrator's kubeconfig under the names that it
// has in the user's file.
func (h Home) AdminKubeconfigData() ([]byte, error) {
	data, err := os.ReadFile(h.AdminKubeconfig())
	if err != nil {
		return nil, h.Incomplete("it has no kubeconfig")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", h.AdminKubeconfig(), err)
	}
	from := config.Contexts[config.CurrentContext]
	if from == nil {
		return nil, h.Incomplete(h.AdminKubeconfig() + " has no context")
	}
	name := ContextName(h.Name)
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = name, name
	named := clientcmdapi.NewConfig()
	named.Clusters[name], named.AuthInfos[name] = config.Clusters[from.Cluster], config.AuthInfos[from.AuthInfo]
	named.Contexts[name], named.CurrentContext = context, name
	return clientcmd.Write(*named)
}
