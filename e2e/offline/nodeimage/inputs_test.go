// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's root, seen from this package.
const root = "../../.."

const modulePrefix = "github.com/fairlead-dev/fairlead/"

// helpers are packages that put nothing into an image: they install, compile and show progress. The sources and flags
// of the compiled programs are covered by components.Key, which is an input.
var helpers = []string{"pkg/components", "e2e/offline/debian", "pkg/progress", "pkg/cluster/binaries"}

// parsed are the Go files of a source, by their path in the repository, tests left out.
func parsed(t *testing.T, source string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files[rel] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// declared are the files in which the names of a package are declared; methods come with their type's users.
func declared(t *testing.T, dir string) map[string]string {
	t.Helper()
	where := map[string]string{}
	for path, file := range parsed(t, dir) {
		if filepath.Dir(path) != dir {
			continue
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					where[d.Name.Name] = path
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range s.Names {
							where[name.Name] = path
						}
					case *ast.TypeSpec:
						where[s.Name.Name] = path
					}
				}
			}
		}
	}
	return where
}

// uses calls f with every name of this repository that a file takes from elsewhere: the directory of the package, and the name.
func uses(file *ast.File, dir string, f func(pkg, name string)) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		if path, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), modulePrefix); ok {
			imports[filepath.Base(path)] = path
		}
	}
	fields := map[*ast.Ident]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			fields[n.Sel] = true
			if x, ok := n.X.(*ast.Ident); ok && imports[x.Name] != "" {
				f(imports[x.Name], n.Sel.Name)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				fields[key] = true
			}
		case *ast.Ident:
			if !fields[n] {
				f(dir, n.Name)
			}
		}
		return true
	})
}

// Everything that a stage's sources use from other files of this repository is part of its key, or of the key of a
// stage below: as a source, or as one of the constants. Otherwise, after a change of a name in package check, an
// outdated image would count as up to date.
func TestUsedSourcesAreInTheKey(t *testing.T) {
	below := map[string][]string{"kubernetes": {"debian"}, "project": {"debian", "kubernetes"}}
	aside := []string{"main.go", "doc.go", "builder.go", "stages.go", "docker.go"}
	said := constantNames(t)
	where := map[string]map[string]string{}
	for stage, own := range sources {
		visible := slices.Clone(own)
		for _, lower := range below[stage] {
			visible = append(visible, sources[lower]...)
		}
		inKey := func(file string) bool {
			return slices.ContainsFunc(visible, func(s string) bool { return file == s || strings.HasPrefix(file, s+"/") })
		}
		for _, source := range own {
			for path, file := range parsed(t, source) {
				uses(file, filepath.Dir(path), func(pkg, name string) {
					if where[pkg] == nil {
						where[pkg] = declared(t, pkg)
					}
					from, ok := where[pkg][name]
					switch {
					case !ok || inKey(from) || slices.Contains(helpers, pkg):
					case pkg == "pkg/imagetar" && name == "Project": // names and digests of what it makes are inputs
					case pkg == sourceDir && slices.Contains(aside, filepath.Base(from)):
					case slices.Contains(said[stage], filepath.Base(pkg)+"."+name):
					default:
						t.Errorf("stage %s: %s uses %s of %s, which is neither among its sources nor among its constants", stage, path, name, from)
					}
				})
			}
		}
	}
}

// constantNames are the names that stand in the variable constants.
func constantNames(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	ast.Inspect(parsed(t, sourceDir+"/stages.go")[sourceDir+"/stages.go"], func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "constants" {
			return true
		}
		for _, element := range spec.Values[0].(*ast.CompositeLit).Elts {
			pair := element.(*ast.KeyValueExpr)
			stage := strings.Trim(pair.Key.(*ast.BasicLit).Value, `"`)
			for _, value := range pair.Value.(*ast.CompositeLit).Elts {
				if s, ok := value.(*ast.SelectorExpr); ok {
					names[stage] = append(names[stage], s.X.(*ast.Ident).Name+"."+s.Sel.Name)
				}
			}
		}
		return false
	})
	if len(names) == 0 {
		t.Fatal("found no constants in stages.go")
	}
	return names
}

// The constants take part in the keys.
func TestConstantsAreInputs(t *testing.T) {
	b := testBuilder(t)
	b.binDir = t.TempDir()
	inputs := b.inputs(nil)
	for stage, values := range constants {
		for _, value := range values {
			if !slices.Contains(inputs[stage], value) {
				t.Errorf("%s is no input of stage %s: %q", value, stage, inputs[stage])
			}
		}
		if _, ok := sources[stage]; !ok {
			t.Errorf("there is no stage %s", stage)
		}
	}
	if _, err := os.Stat(filepath.Join(root, sourceDir)); err != nil {
		t.Errorf("the tests run in another directory: %v", err)
	}
}
