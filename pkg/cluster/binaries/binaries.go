// SPDX-License-Identifier: Apache-2.0

// Package binaries finds or builds the programs that an embedded cluster runs.
//
// There are two kinds. The components (etcd, kube-apiserver, kwok, ...) are
// pinned in pkg/components and built once, by the user's Go toolchain, into a
// cache directory that is named after the pinned versions. The project's own
// programs are next to the running executable. Start with [Find].
package binaries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// own lists the project's own programs that a cluster runs.
var own = []string{"fairlead-scheduler", "konnectivity-server", "konnectivity-agent"}

// needed lists the components that a cluster runs; the other pinned components
// are for nodes and for users.
var needed = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// Options configure where to look for programs.
type Options struct {
	// Dir, if set, must contain all components; nothing is built then.
	Dir string
	// CacheDir is the parent of the directories of built components. Default:
	// $XDG_CACHE_HOME/fairlead, or its equivalent on this system.
	CacheDir string
}

// ErrMissing is returned if a program was not found and cannot be built.
var ErrMissing = errors.New("program not found")

// Find returns the absolute path of every program, by name, after building the
// components that are not in the cache yet. It is safe to call from several
// processes at once: one builds, the others wait.
func Find(ctx context.Context, o Options, reporter progress.Reporter) (map[string]string, error) {
	paths := map[string]string{}
	for _, name := range own {
		path, err := findOwn(name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
	}
	built, err := Components(ctx, o, needed, reporter)
	if err != nil {
		return nil, err
	}
	maps.Copy(paths, built)
	return paths, nil
}

// Components is Find for the named components only, whichever an embedded
// cluster needs.
func Components(ctx context.Context, o Options, names []string, reporter progress.Reporter) (map[string]string, error) {
	dir := o.Dir
	if dir == "" {
		cache, err := cacheDir(o)
		if err != nil {
			return nil, err
		}
		b := builder{dir: cache, progress: reporter}
		if err := b.ensure(ctx, names); err != nil {
			return nil, err
		}
		dir = cache
	}
	paths := map[string]string{}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if !executable(path) {
			return nil, fmt.Errorf("%w: %s: --component-dir has to hold %s", ErrMissing, path, strings.Join(names, ", "))
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		paths[name] = abs
	}
	return paths, nil
}

// cacheDir is the directory for this set of versions.
func cacheDir(o Options) (string, error) {
	base := o.CacheDir
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory: set XDG_CACHE_HOME to a directory of yours: %w", err)
		}
		base = filepath.Join(user, "fairlead")
	}
	return filepath.Join(base, "components", components.KubernetesVersion()+"-"+components.Key()), nil
}

// Own returns the absolute path of one of the project's own programs that not every cluster runs.
func Own(name string) (string, error) { return findOwn(name) }

// findOwn looks next to the running executable first, so that a checkout uses
// what it built, and then in PATH.
func findOwn(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			self = target
		}
		if path := filepath.Join(filepath.Dir(self), name); executable(path) {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%w: %s is neither in the directory of %s nor in PATH: run \"make build\", or \"go install\" it like fairlead itself", ErrMissing, name, self)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
