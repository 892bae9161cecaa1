// SPDX-License-Identifier: Apache-2.0

package nodeimage_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// The node image, and each page that names it, has the Kubernetes of go.mod: a scheduler
// of one version with nodes of another is not what the tests prove.
func TestVersionOfGoMod(t *testing.T) {
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			version = r.Mod.Version
		}
	}
	for _, r := range mod.Replace {
		if r.Old.Path == "k8s.io/kubernetes" {
			t.Errorf("go.mod replaces k8s.io/kubernetes by %s", r.New)
		}
	}
	_, tag, _ := strings.Cut(nodeimage.Name(), ":")
	if version == "" || tag != version {
		t.Errorf("the node image is %s, go.mod has Kubernetes %q: run make update-components", nodeimage.Name(), version)
	}
	named := regexp.MustCompile(`fairlead-dev/kind-node:(v[0-9.]+[0-9])`)
	found := 0
	for _, page := range []string{"../../README.md", "../../docs/node-image.md", "../../docs/kind.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if found++; m[1] != version {
				t.Errorf("%s names %s, want %s", page, m[0], version)
			}
		}
	}
	if found == 0 {
		t.Error("no page names the node image")
	}
}
