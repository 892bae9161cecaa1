package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ContextName is the name under which a cluster stands in kubeconfig files, as
// context, cluster and user.
func ContextName(name string) string { return "fairlead-" + name }

// pathOptions says which file is the user's: explicit, else the last entry
// of $KUBECONFIG that exists or its first one, else ~/.kube/config; the same
// choice that "kubectl config set" makes for new entries.
func pathOptions(explicit string) *clientcmd.PathOptions {
	options := clientcmd.NewDefaultPathOptions()
	options.LoadingRules.ExplicitPath = explicit
	return options
}

// MergeKubeconfig adds the cluster to the user's kubeconfig and makes it the
// current context, leaving all other entries as they are. explicit is the
// value of --kubeconfig, "" for the default files. It returns the file written.
func MergeKubeconfig(name, explicit string, admin []byte) (string, error) {
	source, err := clientcmd.Load(admin)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	from := source.Contexts[source.CurrentContext]
	if from == nil {
		return "", errors.New("the cluster's kubeconfig has no current context")
	}
	options := pathOptions(explicit)
	target, err := startingConfig(options)
	if err != nil {
		return "", err
	}
	key := ContextName(name)
	file := options.GetDefaultFilename()
	target.Clusters[key] = located(source.Clusters[from.Cluster], file)
	user := source.AuthInfos[from.AuthInfo].DeepCopy()
	user.LocationOfOrigin = file
	target.AuthInfos[key] = user
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.LocationOfOrigin = key, key, file
	target.Contexts[key] = context
	target.CurrentContext = key
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	if err := clientcmd.ModifyConfig(options, *target, false); err != nil {
		return "", fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	return file, nil
}

func located(c *clientcmdapi.Cluster, file string) *clientcmdapi.Cluster {
	c = c.DeepCopy()
	c.LocationOfOrigin = file
	return c
}

// RemoveKubeconfig takes the cluster's entries out of the user's kubeconfig and
// tells whether there were any. A current context that pointed to it is unset.
func RemoveKubeconfig(name, explicit string) (bool, error) {
	options := pathOptions(explicit)
	config, err := startingConfig(options)
	if err != nil {
		return false, err
	}
	key := ContextName(name)
	_, hasCluster := config.Clusters[key]
	_, hasUser := config.AuthInfos[key]
	_, hasContext := config.Contexts[key]
	if !hasCluster && !hasUser && !hasContext {
		return false, nil
	}
	delete(config.Clusters, key)
	delete(config.AuthInfos, key)
	delete(config.Contexts, key)
	if config.CurrentContext == key {
		config.CurrentContext = ""
	}
	if err := clientcmd.ModifyConfig(options, *config, false); err != nil {
		return true, fmt.Errorf("removing context %s from the kubeconfig: %w", key, err)
	}
	return true, nil
}

func startingConfig(options *clientcmd.PathOptions) (*clientcmdapi.Config, error) {
	config, err := options.GetStartingConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig (set KUBECONFIG or --kubeconfig to another file, or mend this one): %w", err)
	}
	return config, nil
}
