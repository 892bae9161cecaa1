// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"github.com/fairlead-dev/fairlead/pkg/components"
)

// align returns the components' go.mod with the root module's version of all that both name, and with the modules that
// are published from Kubernetes' repository at Kubernetes' version. Kubernetes' own go.mod asks for v0.0.0 of those
// and replaces them by directories, which works only inside its repository. A new Kubernetes may come with a new module
// of that kind; tidying then complains about its v0.0.0, and a line for it has to be added to components.mod by hand.
func align(root, pinned []byte, kubernetesMod func(version string) ([]byte, error)) ([]byte, error) {
	rootMod, err := modfile.ParseLax(rootFile, root, nil)
	if err != nil {
		return nil, err
	}
	mod, err := modfile.Parse(modFile, pinned, nil)
	if err != nil {
		return nil, err
	}
	versions := versionsOf(rootMod)
	kubernetes, ok := versions[components.KubernetesModule]
	if !ok {
		return nil, fmt.Errorf("%s does not name %s", rootFile, components.KubernetesModule)
	}
	upstream, err := kubernetesMod(kubernetes)
	if err != nil {
		return nil, err
	}
	staging, err := stagingModules(upstream)
	if err != nil {
		return nil, err
	}
	for _, path := range staging {
		versions[path] = "v0" + strings.TrimPrefix(kubernetes, "v1")
	}
	for _, r := range mod.Require {
		if version, ok := versions[r.Mod.Path]; ok {
			if err := mod.AddRequire(r.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	mod.Cleanup()
	return mod.Format()
}

func versionsOf(mod *modfile.File) map[string]string {
	versions := make(map[string]string, len(mod.Require))
	for _, r := range mod.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	return versions
}

// stagingModules lists what Kubernetes' go.mod replaces by a directory of its own.
func stagingModules(kubernetesMod []byte) ([]string, error) {
	mod, err := modfile.Parse("kubernetes/go.mod", kubernetesMod, nil)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			paths = append(paths, r.Old.Path)
		}
	}
	return paths, nil
}

// kubernetesMod returns the go.mod of a Kubernetes version.
func kubernetesMod(ctx context.Context, version string) ([]byte, error) {
	mod := module.Version{Path: components.KubernetesModule, Version: version}
	out, err := goTool(ctx, ".", "mod", "download", "-json", mod.String())
	if err != nil {
		return nil, err
	}
	var download struct{ GoMod string }
	if err := json.Unmarshal(out, &download); err != nil {
		return nil, fmt.Errorf("go mod download -json: %w", err)
	}
	return os.ReadFile(download.GoMod)
}
