package bundle_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// forbidden are packages with effects. Types and schemes of client-go are fine.
var forbidden = []string{
	"os", "os/exec", "net/http", "io/ioutil", "path/filepath", "syscall", "time/tzdata",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "k8s.io/client-go/dynamic", "k8s.io/client-go/discovery",
	"k8s.io/client-go/tools/clientcmd", "k8s.io/client-go/tools/cache", "k8s.io/cli-runtime", "sigs.k8s.io/controller-runtime",
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

// TestPure keeps effects out of the bundle: none of its packages reads a file,
// asks the clock or has a client.
func TestPure(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		checked++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if isForbidden(path) {
				t.Errorf("%s imports %s: the bundle is pure; do it in a provider or the command", name, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 15 {
		t.Errorf("only %d files were looked at", checked)
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
