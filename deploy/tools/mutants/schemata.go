// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
)

// mutantVariable names the environment variable with the number of the mutant that a test binary is.
const mutantVariable = "FAIRLEAD_MUTANT"

// selector is the file that is added to a package. Its variable is initialized before all that use it.
const selector = `package %s

import (
	"os"
	"strconv"
)

var fairleadMutant = func() int { n, _ := strconv.Atoi(os.Getenv("` + mutantVariable + `")); return n }()
`

// schemata returns the files of the package with all mutants in functions. Each function has the bodies of all its mutants and
// chooses one of them: to link a test binary for every mutant takes most of the time otherwise. Mutants of package variables
// and of functions with labels, which may be declared once only, are left.
func (s *source) schemata(mutants []*mutant) map[string][]byte {
	files := map[string][]byte{}
	for _, f := range s.Syntax {
		name := s.Fset.File(f.Pos()).Name()
		text := s.text[name]
		var edits []span
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || hasLabel(fn) || text == nil {
				continue
			}
			from, to := s.Fset.Position(fn.Body.Lbrace).Offset+1, s.Fset.Position(fn.Body.Rbrace).Offset
			if body := bodies(text, from, to, name, mutants); body != "" {
				edits = append(edits, span{from, to, body})
			}
		}
		slices.SortFunc(edits, func(a, b span) int { return cmp.Compare(b.start, a.start) })
		for _, e := range edits {
			text = slices.Concat(text[:e.start], []byte(e.text), text[e.end:])
		}
		if len(edits) > 0 {
			files[name] = text
		}
	}
	if len(files) > 0 {
		files[filepath.Join(s.dir, "fairlead_mutant.go")] = fmt.Appendf(nil, selector, s.Name)
	}
	return files
}

// bodies returns the body of a function that chooses between the mutants in it, or nothing if there are none.
func bodies(text []byte, from, to int, file string, mutants []*mutant) string {
	var b strings.Builder
	for _, m := range mutants {
		if m.file != file || m.start < from || m.end > to {
			continue
		}
		m.together = true
		fmt.Fprintf(&b, "\ncase %d:\n%s%s%s", m.id, text[from:m.start], m.text, text[m.end:to])
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nswitch fairleadMutant {" + b.String() + "\ndefault:\n" + string(text[from:to]) + "\n}\n"
}

func hasLabel(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		found = found || label
		return !found
	})
	return found
}
