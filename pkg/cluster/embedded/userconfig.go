package embedded

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// userKubeconfig is the administrator's kubeconfig under the names that it has
// in the user's file.
func (l Layout) userKubeconfig() ([]byte, error) {
	data, err := os.ReadFile(l.AdminKubeconfig())
	if err != nil {
		return nil, l.Incomplete("it has no kubeconfig")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", l.AdminKubeconfig(), err)
	}
	from := config.Contexts[config.CurrentContext]
	if from == nil {
		return nil, l.Incomplete(l.AdminKubeconfig() + " has no context")
	}
	name := cluster.ContextName(l.Name)
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = name, name
	named := clientcmdapi.NewConfig()
	named.Clusters[name], named.AuthInfos[name] = config.Clusters[from.Cluster], config.AuthInfos[from.AuthInfo]
	named.Contexts[name], named.CurrentContext = context, name
	return clientcmd.Write(*named)
}
