// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is a change of a file.
type mutant struct {
	file       string
	line, col  int
	start, end int // offsets of what is replaced
	text       string
	statement  bool // statements are replaced
	function   string
	was, is    string // the lines, for people
	imports    []span // replaced, too
	repaired   bool
	id         int  // from 1, of the chosen ones
	together   bool // with others in one binary
}

// span is a part of a file that is replaced.
type span struct {
	start, end int
	text       string
}

func (m *mutant) apply(text []byte) []byte {
	text = slices.Concat(text[:m.start], []byte(m.text), text[m.end:])
	slices.SortFunc(m.imports, func(a, b span) int { return b.start - a.start })
	for _, s := range m.imports { // from the last to the first, all before m.start
		text = slices.Concat(text[:s.start], []byte(s.text), text[s.end:])
	}
	return text
}

// diff is the change as in survivors.txt.
func (m *mutant) diff() string { return "- " + m.was + "\n+ " + m.is + "\n" }

// mutator finds the mutants of one file.
type mutator struct {
	*source
	file     string
	function string
	results  *types.Tuple // of the function around
	found    []*mutant
	skip     map[ast.Node]bool // nothing inside is changed
	only     map[ast.Stmt]bool // its removal is that of the body around
}

// mutants returns all mutants, in the order of files and lines. Some of them may not compile.
func (s *source) mutants() []*mutant {
	var all []*mutant
	for _, f := range s.Syntax {
		name := s.Fset.File(f.Pos()).Name()
		if s.text[name] == nil {
			continue
		}
		m := &mutator{source: s, file: name, skip: map[ast.Node]bool{}, only: map[ast.Stmt]bool{}}
		for _, d := range f.Decls {
			m.decl(d)
		}
		all = append(all, m.found...)
	}
	slices.SortStableFunc(all, func(a, b *mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.start-b.start, a.end-b.end, strings.Compare(a.text, b.text))
	})
	return slices.CompactFunc(all, func(a, b *mutant) bool {
		return a.file == b.file && a.start == b.start && a.end == b.end && a.text == b.text
	})
}

func (m *mutator) decl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		m.function = d.Name.Name
		if d.Recv != nil && len(d.Recv.List) == 1 {
			m.function = "(" + types.ExprString(d.Recv.List[0].Type) + ")." + d.Name.Name
		}
		if d.Body != nil {
			sig, _ := m.TypesInfo.Defs[d.Name].Type().(*types.Signature)
			m.results = sig.Results()
			m.walk(d.Body)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				m.function = d.Tok.String() + " " + v.Names[0].Name
				m.walk(v)
			}
		}
	}
}

func (m *mutator) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil || m.skip[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			outer := m.results
			sig, _ := m.TypesInfo.TypeOf(n).(*types.Signature)
			m.results = sig.Results()
			m.walk(n.Body)
			m.results = outer
			return false
		case ast.Stmt:
			return m.stmt(n)
		case ast.Expr:
			m.expr(n)
		}
		return true
	})
}

// stmt returns false if nothing inside of the statement may be changed.
func (m *mutator) stmt(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.BlockStmt:
		m.list(s.List)
	case *ast.CaseClause:
		m.body(s.Body, s.Colon+1, s.End())
		m.list(s.Body)
	case *ast.CommClause:
		m.body(s.Body, s.Colon+1, s.End())
		m.list(s.Body)
	case *ast.IfStmt:
		m.body(s.Body.List, s.Body.Lbrace+1, s.Body.Rbrace)
		switch c := ast.Unparen(s.Cond).(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr:
		default:
			m.replace(c, "!("+m.code(c)+")")
		}
	case *ast.ForStmt:
		if s.Post != nil {
			m.skip[s.Post] = true // a loop without an end shows nothing about tests
		}
	case *ast.ReturnStmt:
		m.returned(s)
	case *ast.ExprStmt:
		return !m.isLog(s.X)
	case *ast.IncDecStmt:
		op := map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
		m.edit(s.TokPos, s.TokPos+2, op)
	case *ast.AssignStmt:
		if op, ok := map[token.Token]string{token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+="}[s.Tok]; ok {
			m.edit(s.TokPos, s.TokPos+2, op)
		}
	}
	return true
}

// list removes statements of a list.
func (m *mutator) list(list []ast.Stmt) {
	for _, s := range list {
		if m.only[s] {
			continue
		}
		switch s := s.(type) {
		case *ast.ExprStmt:
			if !m.isLog(s.X) {
				m.remove(s.Pos(), s.End())
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
			m.remove(s.Pos(), s.End())
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
				m.remove(s.Pos(), s.End())
			}
		case *ast.AssignStmt:
			m.unassign(s)
		}
	}
}

// unassign drops the assignment and keeps the use of what is assigned, without which variables may be unused.
func (m *mutator) unassign(s *ast.AssignStmt) {
	isBlank := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "_" }
	if s.Tok == token.DEFINE || slices.ContainsFunc(s.Lhs, isBlank) && len(s.Lhs) == 1 {
		return
	}
	isNil := func(e ast.Expr) bool { return m.TypesInfo.Types[e].IsNil() }
	if slices.ContainsFunc(s.Rhs, isNil) {
		m.remove(s.Pos(), s.End())
		return
	}
	blanks := strings.TrimSuffix(strings.Repeat("_, ", len(s.Lhs)), ", ")
	m.edit(s.Pos(), s.Rhs[0].Pos(), blanks+" = ")
}

// body empties the body of an if or a case.
func (m *mutator) body(list []ast.Stmt, from, to token.Pos) {
	if len(list) > 0 && !(len(list) == 1 && m.isLogStmt(list[0])) {
		m.remove(from, to)
		m.only[list[0]] = len(list) == 1
	}
}

// returned returns nil for an error. Numbers, true and false beside an error stay as they are: callers do not look at them.
func (m *mutator) returned(s *ast.ReturnStmt) {
	if m.results == nil || len(s.Results) != m.results.Len() {
		return
	}
	for i, r := range s.Results {
		if !types.Identical(m.results.At(i).Type(), types.Universe.Lookup("error").Type()) || m.TypesInfo.Types[r].IsNil() {
			continue
		}
		m.replace(r, "nil")
		for _, other := range s.Results {
			if m.TypesInfo.Types[other].Value != nil {
				m.skip[other] = other != r
			}
		}
	}
}

// swaps are the operators that each binary operator becomes.
var swaps = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
}

func (m *mutator) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		for _, op := range swaps[e.Op] {
			m.edit(e.OpPos, e.OpPos+token.Pos(len(e.Op.String())), op.String())
		}
		if e.Op == token.LAND || e.Op == token.LOR {
			m.replace(e, m.code(e.X))
			m.replace(e, m.code(e.Y))
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			m.replace(e, m.code(e.X))
		}
	case *ast.CallExpr:
		m.skipCapacity(e)
	case *ast.BasicLit:
		if v, ok := constant.Int64Val(constant.ToInt(m.value(e))); ok && e.Kind == token.INT {
			m.replace(e, constant.MakeInt64(v+1).ExactString())
		}
	case *ast.Ident:
		if swap, ok := map[types.Object]string{types.Universe.Lookup("true"): "false", types.Universe.Lookup("false"): "true"}[m.TypesInfo.Uses[e]]; ok {
			m.replace(e, swap)
		}
	}
}

func (m *mutator) value(e *ast.BasicLit) constant.Value {
	return constant.MakeFromLiteral(e.Value, e.Kind, 0)
}

// skipCapacity keeps the third argument of make, of which no test can see a change.
func (m *mutator) skipCapacity(c *ast.CallExpr) {
	id, ok := c.Fun.(*ast.Ident)
	if ok && m.TypesInfo.Uses[id] == types.Universe.Lookup("make") && len(c.Args) == 3 {
		m.skip[c.Args[2]] = true
	}
}

// logPackages are the packages whose calls stay as they are.
var logPackages = []string{"k8s.io/klog/v2", "github.com/go-logr/logr", "log", "log/slog"}

// isLog reports whether an expression is a call that writes to a log.
func (m *mutator) isLog(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	o := m.TypesInfo.Uses[sel.Sel]
	return o != nil && o.Pkg() != nil && (slices.Contains(logPackages, o.Pkg().Path()) || strings.HasSuffix(o.Pkg().Path(), "/logthrottle"))
}

func (m *mutator) isLogStmt(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	return ok && m.isLog(e.X)
}

func (m *mutator) code(n ast.Node) string {
	return string(m.text[m.file][m.offset(n.Pos()):m.offset(n.End())])
}

func (m *mutator) offset(p token.Pos) int { return m.Fset.PositionFor(p, false).Offset }

func (m *mutator) replace(n ast.Node, text string) { m.edit(n.Pos(), n.End(), text) }

// remove removes statements.
func (m *mutator) remove(from, to token.Pos) {
	m.edit(from, to, "")
	m.found[len(m.found)-1].statement = true
}

func (m *mutator) edit(from, to token.Pos, text string) {
	pos := m.Fset.PositionFor(from, false)
	c := &mutant{file: m.file, line: pos.Line, col: pos.Column, start: pos.Offset, end: m.offset(to), text: text, function: m.function}
	c.was, c.is = lines(m.text[m.file], c)
	m.found = append(m.found, c)
}

// lines returns the lines of a change, before and after it, each as one line.
func lines(text []byte, m *mutant) (was, is string) {
	from := strings.LastIndexByte(string(text[:m.start]), '\n') + 1
	to := len(text)
	if i := strings.IndexByte(string(text[m.end:]), '\n'); i >= 0 {
		to = m.end + i
	}
	before, after := string(text[from:m.start]), string(text[m.end:to])
	return oneLine(before + string(text[m.start:m.end]) + after), oneLine(before + m.text + after)
}

// oneLine joins lines. Of a long text the middle is left out.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 200 {
		text = string(runes[:120]) + " ... " + string(runes[len(runes)-70:])
	}
	return text
}
