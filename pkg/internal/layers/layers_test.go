// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/fairlead-dev/fairlead/"

// support is what every part may link.
var support = []string{"internal/gobuild", "internal/testutil", "pkg/internal", "pkg/fsutil", "pkg/interrupt", "pkg/progress"}

// links are the other parts that a part may link, directly or through others. A part is a directory below pkg, or a program.
var links = map[string]string{
	// Libraries that know nothing of Fairlead's bundle.
	"pkg/components":   "",
	"pkg/crd":          "",
	"pkg/daemon":       "",
	"pkg/monitoring":   "",
	"pkg/nodeimage":    "components",
	"pkg/konnectivity": "daemon",

	// The bundle and its kinds. They know the programs' settings and arguments. The versions of a kind are in both: v1beta1 in
	// pkg/apis has types of pkg/bundle/v1alpha1 for what did not change, and pkg/bundle loads every version through pkg/apis.
	"pkg/bundle":    "apis components konnectivity scheduler",
	"pkg/apis":      "bundle konnectivity scheduler",
	"pkg/scheduler": "daemon konnectivity",
	"pkg/imagetar":  "bundle konnectivity scheduler",

	// What serves or carries.
	"pkg/gateway":   "apis bundle konnectivity scheduler",
	"pkg/tunnelapi": "apis bundle gateway konnectivity scheduler",

	// What applies: no provider, no check, no command.
	"pkg/install":      "apis bundle components konnectivity scheduler",
	"pkg/controlplane": "apis bundle components konnectivity scheduler",
	"pkg/operator":     "apis bundle components crd install konnectivity scheduler",

	// What observes.
	"pkg/check":   "bundle components konnectivity scheduler",
	"pkg/observe": "apis bundle check components controlplane install konnectivity scheduler",
	"pkg/sysdump": "apis bundle check components controlplane install konnectivity observe scheduler",

	// Providers of clusters. Each hands the checks a connection to its cluster.
	"pkg/cluster": "apis bundle check components controlplane imagetar install konnectivity nodeimage scheduler",

	"cmd/konnectivity-agent":  "daemon konnectivity",
	"cmd/konnectivity-server": "daemon konnectivity",
	"cmd/fairlead-scheduler":  "daemon konnectivity scheduler",
	"cmd/fairlead-apiserver":  "apis bundle gateway konnectivity scheduler tunnelapi",
	"cmd/fairlead-operator":   "apis bundle components crd install konnectivity operator scheduler",
}

// lean are programs, and libraries that they leave out: they cost memory on every node, or in each call of the command line.
var lean = map[string][]string{
	"cmd/konnectivity-agent":  {"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/apiserver", "k8s.io/api", "google.golang.org/grpc", "golang.org/x/net/http2"},
	"cmd/konnectivity-server": {"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/apiserver", "k8s.io/api", "google.golang.org/grpc", "golang.org/x/net/http2"},
	"cmd/fairlead":            {"sigs.k8s.io/controller-runtime", modulePath + "pkg/operator", modulePath + "pkg/tunnelapi", "k8s.io/kubernetes/cmd/kube-scheduler"},
	"pkg/cli":                 {"sigs.k8s.io/controller-runtime", modulePath + "pkg/operator", modulePath + "pkg/tunnelapi", "k8s.io/kubernetes/cmd/kube-scheduler"},
}

// free are the parts that may link all others.
var free = map[string]bool{"pkg/cli": true, "cmd/fairlead": true}

type goPackage struct {
	ImportPath string
	Deps       []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps", "./pkg/...", "./cmd/...", "./internal/...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	var found []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			t.Fatal(err)
		}
		found = append(found, p)
	}
}

// part returns the directory below pkg, or the program, that a package of this module belongs to.
func part(importPath string) (string, bool) {
	rest, ok := strings.CutPrefix(importPath, modulePath)
	parts := strings.SplitN(rest, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/"), ok
}

// TestLinks checks the whole closure of imports of all packages but those for tests.
func TestLinks(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		of, _ := part(p.ImportPath)
		allowed, bound := links[of]
		if !bound && !free[of] && !slices.Contains(support, of) && !seen[of] {
			t.Errorf("%s is new: say which parts it may link", of)
		}
		seen[of] = true
		if strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		for _, dep := range p.Deps {
			other, own := part(dep)
			if bound && own && other != of && !slices.Contains(support, other) && !slices.Contains(strings.Fields(allowed), strings.TrimPrefix(other, "pkg/")) {
				t.Errorf("%s links %s: %s may link only: %s", strings.TrimPrefix(p.ImportPath, modulePath), strings.TrimPrefix(dep, modulePath), of, allowed)
			}
			for _, heavy := range lean[of] {
				if dep == heavy || strings.HasPrefix(dep, heavy+"/") && dep != "golang.org/x/net/http2/hpack" {
					t.Errorf("%s links %s, which it leaves out: see lean", of, dep)
				}
			}
		}
	}
	for _, of := range slices.Concat(slices.Collect(maps.Keys(links)), slices.Collect(maps.Keys(free)), support) {
		if !seen[of] {
			t.Errorf("there is no %s", of)
		}
	}
}
