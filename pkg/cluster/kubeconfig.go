// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
)

// ContextName is the name of a cluster's context, cluster and user in kubeconfig files.
func ContextName(name string) string { return "fairlead-" + name }

// pathOptions determines the user's file: explicit, or else the first entry of
// $KUBECONFIG that exists or its last one, or else ~/.kube/config. "kubectl config set"
// makes the same choice for new entries.
func pathOptions(explicit string) *clientcmd.PathOptions {
	options := clientcmd.NewDefaultPathOptions()
	options.LoadingRules.ExplicitPath = explicit
	return options
}

// MergeKubeconfig adds the cluster to the user's kubeconfig and makes it the
// current context, leaving all other entries as they are. explicit is the
// value of --kubeconfig, "" for the default files. It returns the file written
// and the context that was current before, for RemoveKubeconfig.
func MergeKubeconfig(name, explicit string, admin []byte) (file, previous string, err error) {
	source, err := clientcmd.Load(admin)
	if err != nil {
		return "", "", fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	from := source.Contexts[source.CurrentContext]
	if from == nil {
		return "", "", errors.New("the cluster's kubeconfig has no current context")
	}
	key := ContextName(name)
	file = pathOptions(explicit).GetDefaultFilename()
	err = editKubeconfig(file, func(config *clientcmdapi.Config) bool {
		previous = config.CurrentContext
		config.Clusters[key] = source.Clusters[from.Cluster]
		config.AuthInfos[key] = source.AuthInfos[from.AuthInfo]
		context := clientcmdapi.NewContext()
		context.Cluster, context.AuthInfo = key, key
		config.Contexts[key] = context
		config.CurrentContext = key
		return true
	})
	return file, previous, err
}

// RemoveKubeconfig removes the cluster's entries from the user's kubeconfig files and
// reports whether there were any. If the current context was the cluster's, it becomes
// previous again, if that still exists. server, if not empty, is the URL that the entry
// must have: a context of the same name may belong to another state directory.
func RemoveKubeconfig(name, explicit, server, previous string) (bool, error) {
	key, files := ContextName(name), pathOptions(explicit).GetLoadingPrecedence()
	if explicit != "" {
		files = []string{explicit}
	}
	removed := false
	for _, file := range files {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			continue
		}
		err := editKubeconfig(file, func(config *clientcmdapi.Config) bool {
			cluster, hasCluster := config.Clusters[key]
			_, hasUser := config.AuthInfos[key]
			_, hasContext := config.Contexts[key]
			if !hasCluster && !hasUser && !hasContext || hasCluster && server != "" && cluster.Server != server {
				return false
			}
			delete(config.Clusters, key)
			delete(config.AuthInfos, key)
			delete(config.Contexts, key)
			if config.CurrentContext == key {
				config.CurrentContext = ""
				if _, ok := config.Contexts[previous]; ok {
					config.CurrentContext = previous
				}
			}
			removed = true
			return true
		})
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// CheckKubeconfig fails early for a file into which the context could not be merged
// later, so that the user does not wait minutes for that error. It creates no directory.
func CheckKubeconfig(explicit string) error {
	file := pathOptions(explicit).GetDefaultFilename()
	_, err := clientcmd.LoadFromFile(file)
	switch {
	case err == nil:
		if err := writable(file); err != nil {
			return unwritable(file, err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return kubeconfigfile.Unreadable(file, err)
	}
	dir := filepath.Dir(file)
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	if dir == filepath.Dir(file) {
		unlock, err := kubeconfigfile.Lock(file)
		if err == nil {
			unlock()
		}
		return err
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return unwritable(file, fmt.Errorf("%s: %w", dir, err))
	}
	return nil
}

// writable reports whether [fsutil.Rewrite] can write the file: in place, or, if only its
// mode forbids that, by replacing it.
func writable(file string) error {
	err := unix.Access(file, unix.W_OK)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	info, statErr := os.Stat(file)
	if statErr != nil {
		return statErr
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || stat.Nlink > 1 {
		return err
	}
	return unix.Access(filepath.Dir(kubeconfigfile.Resolve(file)), unix.W_OK|unix.X_OK)
}

func unwritable(file string, err error) error {
	return fmt.Errorf("writing kubeconfig %s: %w: make it writable, or choose another file with --kubeconfig or $KUBECONFIG", file, err)
}

// editKubeconfig changes one file as [kubeconfigfile.Change] does. edit returns false to leave
// the file as it is.
func editKubeconfig(file string, edit func(*clientcmdapi.Config) bool) error {
	return kubeconfigfile.Change(file, func(old []byte) ([]byte, error) {
		config := clientcmdapi.NewConfig()
		if old != nil {
			var err error
			if config, err = clientcmd.Load(old); err != nil {
				return nil, kubeconfigfile.Unreadable(file, err)
			}
		}
		if !edit(config) {
			return nil, nil
		}
		data, err := clientcmd.Write(*config)
		if err != nil {
			return nil, fmt.Errorf("encoding kubeconfig %s: %w", file, err)
		}
		return data, nil
	})
}
