// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// source is a package with its types.
type source struct {
	*packages.Package
	name string // of its directory in the module, such as pkg/gateway/rules
	dir  string
	text map[string][]byte // of each file that is not generated
}

func load(ctx context.Context, dir string, patterns []string) ([]*source, error) {
	// Without NeedDeps, the types of imports come from Go's build cache.
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes |
		packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedModule
	loaded, err := packages.Load(&packages.Config{Context: ctx, Dir: dir, Mode: mode}, patterns...)
	if err != nil {
		return nil, err
	}
	var found []*source
	for _, p := range loaded {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		if len(p.CompiledGoFiles) == 0 {
			continue
		}
		s := &source{Package: p, dir: filepath.Dir(p.CompiledGoFiles[0]), text: map[string][]byte{}}
		s.name = p.PkgPath
		if p.Module != nil {
			s.name = strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
		}
		for _, f := range p.Syntax {
			if ast.IsGenerated(f) {
				continue
			}
			name := p.Fset.File(f.Pos()).Name()
			text, readErr := os.ReadFile(name)
			err = errors.Join(err, readErr)
			s.text[name] = text
		}
		found = append(found, s)
	}
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no package in %s matches %s", dir, strings.Join(patterns, " "))
	}
	return found, err
}

// compiles reports whether the package with this mutant has correct types. That takes milliseconds, a compiler takes a second.
// If nothing but imports and variables is unused, it repairs the mutant.
func (s *source) compiles(m *mutant) bool {
	changed, err := parser.ParseFile(s.Fset, m.file, m.apply(s.text[m.file]), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	errs := s.check(changed)
	if len(errs) == 0 || m.repaired {
		return len(errs) == 0
	}
	m.repaired = true
	for _, e := range errs {
		if !e.Soft || !m.repair(s.text[m.file], e, changed) {
			return false
		}
	}
	return s.compiles(m)
}

// check returns the errors of the package with one of its files replaced.
func (s *source) check(changed *ast.File) (errs []types.Error) {
	name := s.Fset.File(changed.Pos()).Name()
	files := []*ast.File{changed}
	for _, f := range s.Syntax {
		if s.Fset.File(f.Pos()).Name() != name {
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: s, Sizes: s.TypesSizes, Error: func(err error) {
		if e := (types.Error{}); errors.As(err, &e) {
			errs = append(errs, e)
		}
	}}
	if s.Module != nil {
		conf.GoVersion = "go" + s.Module.GoVersion
	}
	_, _ = conf.Check(s.PkgPath, s.Fset, files, nil)
	return errs
}

// repair adds what makes an import or a variable used.
func (m *mutant) repair(text []byte, e types.Error, changed *ast.File) bool {
	if name, ok := strings.CutPrefix(e.Msg, "declared and not used: "); ok && m.statement {
		m.text += "_ = " + name + "; "
		return true
	}
	for _, spec := range changed.Imports {
		if spec.Pos() <= e.Pos && e.Pos < spec.End() {
			// Imports stand before what is replaced: the offsets are those of the original.
			start, end := e.Fset.Position(spec.Pos()).Offset, e.Fset.Position(spec.End()).Offset
			m.imports = append(m.imports, span{start, end, "_ " + string(text[e.Fset.Position(spec.Path.Pos()).Offset:end])})
			return true
		}
	}
	return false
}

// Import returns the types of a package that this one imports.
func (s *source) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := s.Imports[path]; p != nil && p.Types != nil {
		return p.Types, nil
	}
	return nil, fmt.Errorf("no types of %s", path)
}
