package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
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

// RemoveKubeconfig takes the cluster's entries out of the user's kubeconfig
// files and tells whether there were any. A current context that pointed to it
// is set back to previous, if that still exists. server, if not empty, is the
// URL that the entry has to have: a context of the same name may belong to
// another state directory.
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

// CheckKubeconfig refuses a file into which the context could not be merged
// later, so that nobody waits minutes to hear it.
func CheckKubeconfig(explicit string) error {
	file := pathOptions(explicit).GetDefaultFilename()
	if _, err := clientcmd.LoadFromFile(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return unreadable(file, err)
	}
	return nil
}

func unreadable(file string, err error) error {
	return fmt.Errorf("reading kubeconfig %s (mend it, or choose another file with --kubeconfig or $KUBECONFIG): %w", file, err)
}

// editKubeconfig changes one file under the lock that kubectl uses, too, and
// replaces it in one step. edit returns false to leave the file as it is.
func editKubeconfig(file string, edit func(*clientcmdapi.Config) bool) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // a link stays a link
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	unlock, err := lockKubeconfig(file)
	if err != nil {
		return err
	}
	defer unlock()
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, os.ErrNotExist) {
		config, err = clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return unreadable(file, err)
	}
	if !edit(config) {
		return nil
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding kubeconfig %s: %w", file, err)
	}
	return fsutil.WriteFile(file, data, 0o600)
}

// lockWait is how long to wait for somebody else's change; kubectl takes milliseconds.
const lockWait = 5 * time.Second

// lockKubeconfig takes kubectl's lock: a file that must not exist yet.
func lockKubeconfig(file string) (unlock func(), err error) {
	lock := file + ".lock"
	for deadline := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			_ = f.Close()
			return func() { _ = os.Remove(lock) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("locking kubeconfig %s: %w", file, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("kubeconfig %s is locked: if no kubectl or fairlead is at work on it, remove the stale %s", file, lock)
		}
	}
}
