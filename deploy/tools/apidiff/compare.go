// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff" //nolint:depguard // the tool that Go itself uses; the standard library has none
	"golang.org/x/tools/go/packages"
)

// report has the incompatible changes of one package, whose name is its directory in the module.
type report struct {
	pkg          string
	incompatible []string
}

// compare returns the packages of dir whose API is incompatible with that at base.
func compare(ctx context.Context, dir, base string) (_ []report, err error) {
	tmp, err := os.MkdirTemp("", "apidiff-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	checkout := filepath.Join(tmp, "base")
	if _, err := git(ctx, dir, "worktree", "add", "--quiet", "--detach", checkout, base); err != nil {
		return nil, err
	}
	defer func() {
		_, removed := git(ctx, dir, "worktree", "remove", "--force", checkout)
		err = errors.Join(err, removed)
	}()
	before, err := load(ctx, checkout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", base, err)
	}
	after, err := load(ctx, dir)
	if err != nil {
		return nil, err
	}
	var reports []report
	for name, old := range before {
		r := report{pkg: name}
		now, ok := after[name]
		if !ok {
			r.incompatible = []string{"the package is removed"}
		} else {
			for _, c := range apidiff.Changes(old, now).Changes {
				if !c.Compatible {
					r.incompatible = append(r.incompatible, c.Message)
				}
			}
		}
		if len(r.incompatible) > 0 {
			reports = append(reports, r)
		}
	}
	slices.SortFunc(reports, func(a, b report) int { return cmp.Compare(a.pkg, b.pkg) })
	return reports, nil
}

// load returns the types of the module's packages by their directory.
func load(ctx context.Context, dir string) (map[string]*types.Package, error) {
	found, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     dir,
		Mode:    packages.NeedName | packages.NeedImports | packages.NeedTypes | packages.NeedModule,
	}, "./...")
	if err != nil {
		return nil, err
	}
	api := map[string]*types.Package{}
	for _, p := range found {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		if p.Module == nil || p.Types == nil || p.Name == "main" {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
		if slices.Contains(strings.Split(name, "/"), "internal") {
			continue
		}
		api[cmp.Or(name, ".")] = p.Types
	}
	return api, err
}
