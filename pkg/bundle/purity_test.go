// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const modulePath = "github.com/fairlead-dev/fairlead"

// forbidden are packages with effects. Types and schemes of client-go are fine.
var forbidden = []string{
	"os", "os/exec", "os/user", "os/signal", "net/http", "io/ioutil", "path/filepath", "syscall", "time/tzdata",
	"math/rand", "math/rand/v2", "crypto/rand", "golang.org/x/sys/unix", "unsafe", "plugin",
	"k8s.io/apimachinery/pkg/util/rand", "k8s.io/apimachinery/pkg/util/uuid", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/utils/clock",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "k8s.io/client-go/dynamic", "k8s.io/client-go/discovery",
	"k8s.io/client-go/tools/clientcmd", "k8s.io/client-go/tools/cache", "k8s.io/cli-runtime", "sigs.k8s.io/controller-runtime",
}

// allowed are packages of this module that may import a forbidden one, and why.
var allowed = map[string]map[string]string{
	"pkg/bundle/pki": {"crypto/rand": "private keys and serial numbers must not be guessed"},
}

// forbiddenNames have effects, in packages that are pure otherwise. A star stands for any ending.
var forbiddenNames = map[string][]string{
	"time":                                 {"Now", "Since", "Until", "After*", "Sleep", "Tick", "NewT*", "Local", "LoadLocation"},
	"net":                                  {"Dial*", "Listen*", "Lookup*", "Resolve*", "Interface*", "DefaultResolver", "Resolver", "FileConn", "FileListener"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

func isForbiddenName(pkg, name string) bool {
	return slices.ContainsFunc(forbiddenNames[pkg], func(f string) bool {
		prefix, wildcard := strings.CutSuffix(f, "*")
		return name == f || wildcard && strings.HasPrefix(name, prefix)
	})
}

func isForbidden(path string) bool {
	for _, f := range forbidden {
		if path == f {
			return true
		}
		// A whole module, but clientcmd/api is only types.
		if strings.HasPrefix(path, f+"/") && strings.Contains(f, ".") && !strings.HasPrefix(path, "k8s.io/client-go/tools/clientcmd/api") {
			return true
		}
	}
	return false
}

// effects lists what a file of package dir imports or calls and must not.
func effects(file *ast.File, dir string) []string {
	var found []string
	names := map[string]string{} // of imported packages
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return append(found, err.Error())
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
		if isForbidden(imported) && allowed[dir][imported] == "" || name == "." {
			found = append(found, "imports "+imported)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && isForbiddenName(names[x.Name], sel.Sel.Name) {
				found = append(found, fmt.Sprintf("uses %s.%s", names[x.Name], sel.Sel.Name))
			}
		}
		return true
	})
	return found
}

// sources parses the files of a package of this module, tests left out.
func sources(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	all, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no source in %s", dir)
	}
	return files
}

// packages are the directories of all packages below this one.
func packages(t *testing.T) []string {
	t.Helper()
	dirs := []string{"pkg/bundle"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "testdata" {
			dirs = append(dirs, "pkg/bundle/"+e.Name())
		}
	}
	return dirs
}

// TestPure keeps effects out of the bundle: none of its packages, nor what they import of
// this module, reads a file, asks the clock, takes random numbers or has a client.
func TestPure(t *testing.T) {
	checked := map[string]bool{}
	for todo := packages(t); len(todo) > 0; {
		dir := todo[0]
		if todo = todo[1:]; checked[dir] {
			continue
		}
		checked[dir] = true
		for name, file := range sources(t, dir) {
			for _, effect := range effects(file, dir) {
				t.Errorf("%s %s: the bundle is pure; do it in a provider or the command", name, effect)
			}
			for _, spec := range file.Imports {
				if imported, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), modulePath+"/"); ok {
					todo = append(todo, imported)
				}
			}
		}
	}
	for _, dir := range []string{"pkg/bundle", "pkg/bundle/pki", "pkg/components", "pkg/scheduler/profilecheck"} {
		if !checked[dir] {
			t.Errorf("%s was not looked at", dir)
		}
	}
}

// TestEffects proves that the check sees each kind of effect, and nothing where there is none.
func TestEffects(t *testing.T) {
	for name, tc := range map[string]struct {
		dir, text string
		want      []string
	}{
		"clock":             {"pkg/bundle", `import "time"; var now = time.Now()`, []string{"uses time.Now"}},
		"renamed clock":     {"pkg/bundle", `import clock "time"; func f() { now := clock.Now; _ = now }`, []string{"uses time.Now"}},
		"hidden clock":      {"pkg/bundle", `import . "time"; var now = Now()`, []string{"imports time"}},
		"Kubernetes' clock": {"pkg/bundle", `import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"; var now = metav1.Now()`, []string{"uses k8s.io/apimachinery/pkg/apis/meta/v1.Now"}},
		"timer":             {"pkg/bundle", `import "time"; var c = time.NewTimer(1)`, []string{"uses time.NewTimer"}},
		"network":           {"pkg/bundle", `import "net"; var d = net.Dialer{}`, []string{"uses net.Dialer"}},
		"file":              {"pkg/components", `import "os"`, []string{"imports os"}},
		"randomness":        {"pkg/bundle", `import "crypto/rand"`, []string{"imports crypto/rand"}},
		"keys":              {"pkg/bundle/pki", `import "crypto/rand"`, nil},
		"weak keys":         {"pkg/bundle/pki", `import "math/rand/v2"`, []string{"imports math/rand/v2"}},
		"given time":        {"pkg/bundle", `import "time"; func f(t time.Time) time.Time { return t.Add(time.Hour) }`, nil},
		"address":           {"pkg/bundle", `import "net"; var ip = net.ParseIP("192.0.2.1")`, nil},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), name, "package p; "+tc.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, effects(file, tc.dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIsForbidden(t *testing.T) {
	for path, want := range map[string]bool{
		"os": true, "net/http": true, "net/url": false, "k8s.io/client-go/kubernetes/typed/core/v1": true,
		"k8s.io/client-go/tools/clientcmd": true, "k8s.io/client-go/tools/clientcmd/api/v1": false, "k8s.io/api/core/v1": false,
	} {
		if got := isForbidden(path); got != want {
			t.Errorf("isForbidden(%q) = %t", path, got)
		}
	}
}
