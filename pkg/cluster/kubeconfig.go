// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
		return unreadable(file, err)
	}
	dir := filepath.Dir(file)
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	if dir == filepath.Dir(file) {
		unlock, err := lockKubeconfig(file)
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
	return unix.Access(filepath.Dir(resolve(file)), unix.W_OK|unix.X_OK)
}

func unwritable(file string, err error) error {
	return fmt.Errorf("writing kubeconfig %s: %w: make it writable, or choose another file with --kubeconfig or $KUBECONFIG", file, err)
}

// resolve follows links, so that a link stays a link.
func resolve(file string) string {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		return target
	}
	return file
}

func unreadable(file string, err error) error {
	return fmt.Errorf("reading kubeconfig %s (mend it, or choose another file with --kubeconfig or $KUBECONFIG): %w", file, err)
}

// editKubeconfig changes one file as [ChangeKubeconfig] does. edit returns false to leave
// the file as it is.
func editKubeconfig(file string, edit func(*clientcmdapi.Config) bool) error {
	return ChangeKubeconfig(file, func(old []byte) ([]byte, error) {
		config := clientcmdapi.NewConfig()
		if old != nil {
			var err error
			if config, err = clientcmd.Load(old); err != nil {
				return nil, unreadable(file, err)
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

// lockWait is how long to wait for another program's change; kubectl takes milliseconds.
const lockWait = 5 * time.Second

// lockKubeconfig locks a file under the given name, as kubectl does. If that is a link,
// it also locks the target's name, for programs that use that name.
func lockKubeconfig(file string) (func(), error) {
	unlock, err := lockName(file)
	target := resolve(file)
	if err != nil || target == file || sameName(target, file) {
		return unlock, err
	}
	unlockTarget, err := lockName(target)
	switch {
	case err == nil:
		return func() { unlockTarget(); unlock() }, nil
	case errors.Is(err, errLocked):
		unlock()
		return nil, err
	}
	// No program can create a lock there.
	return unlock, nil
}

// sameName reports whether two names of a file share a lock file.
func sameName(a, b string) bool {
	return filepath.Base(a) == filepath.Base(b) && resolve(filepath.Dir(a)) == resolve(filepath.Dir(b))
}

var errLocked = errors.New("locked")

// lockName takes kubectl's lock: a file that must not exist yet.
func lockName(file string) (unlock func(), err error) {
	lock := file + ".lock"
	for deadline := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			_ = f.Close()
			return func() { _ = os.Remove(lock) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("locking kubeconfig %s: %w: make its directory writable, or choose another file with --kubeconfig or $KUBECONFIG", file, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("kubeconfig %s is %w: if no kubectl or fairlead is at work on it, remove the stale %s", file, errLocked, lock)
		}
	}
}
