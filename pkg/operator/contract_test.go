// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestFlags: the program knows the flags that its Deployment passes.
func TestFlags(t *testing.T) {
	cmd := operator.NewCommand()
	if err := cmd.ParseFlags(component.Args(operatorbundle.Flags(operatorbundle.Options{}))); err != nil {
		t.Error(err)
	}
}

// TestInventories: the operator may update the inventories of the parties that it applies as.
func TestInventories(t *testing.T) {
	if want := []string{install.Command.Inventory(), install.Pools.Inventory()}; !slices.Equal(operatorbundle.Inventories, want) {
		t.Errorf("the Role names %v, want %v", operatorbundle.Inventories, want)
	}
}

// TestDocumentedReasons: the table of conditions in docs/api.md has each reason of package
// v1beta1, and no other.
func TestDocumentedReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../apis/fairlead/v1beta1/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			want[text] = true
		}
		return true
	})
	data, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "### Conditions\n")
	if !found || len(want) < 10 {
		t.Fatalf("%d reasons, section found: %v", len(want), found)
	}
	section, _, _ = strings.Cut(section, "\n### ")
	documented := map[string]bool{}
	quoted := regexp.MustCompile("`([A-Za-z]+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[3]+cells[4], -1) {
			documented[m[1]] = true
		}
	}
	for reason := range want {
		if !documented[reason] {
			t.Errorf("docs/api.md lacks reason %s", reason)
		}
	}
	for reason := range documented {
		if !want[reason] {
			t.Errorf("docs/api.md has reason %s, which nothing sets", reason)
		}
	}
}
