// SPDX-License-Identifier: Apache-2.0

package components

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

func TestComponents(t *testing.T) {
	want := map[string]string{
		"etcd":                    "go.etcd.io/etcd/server/v3",
		"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
		"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
		"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
		"kube-proxy":              "k8s.io/kubernetes/cmd/kube-proxy",
		"kubeadm":                 "k8s.io/kubernetes/cmd/kubeadm",
		"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
		"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
		"kwok":                    "sigs.k8s.io/kwok/cmd/kwok",
	}
	got := map[string]string{}
	for _, c := range Components() {
		got[c.Name] = c.Package
		if !semver.IsValid(c.Version) || c.Version == "v0.0.0" {
			t.Errorf("%s: version %q does not name a release", c.Name, c.Version)
		}
		if !strings.HasPrefix(c.LDFlags, stripped+" -X ") {
			t.Errorf("%s: no version is stamped: %q", c.Name, c.LDFlags)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
}

func TestGetUnknown(t *testing.T) {
	if _, err := Get("kube-router"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "kube-router") {
		t.Errorf("Get(kube-router): %v", err)
	}
}

func TestKubernetesLDFlags(t *testing.T) {
	got := KubernetesLDFlags("v1.36.3")
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3",
		"-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/component-base/version.gitMinor=36",
		"-X k8s.io/component-base/version.gitTreeState=clean",
		"-X k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
	} {
		if !strings.Contains(got+" ", want+" ") {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}

// A package is compiled once for the product and the components only if both modules select the same version of
// everything that it is compiled from.
func TestVersionsAgreeWithRootModule(t *testing.T) {
	root := requires(t, "../../go.mod")
	components := requires(t, "components.mod")
	shared := 0
	for path, version := range components {
		other, ok := root[path]
		if !ok {
			continue
		}
		shared++
		if version != other {
			t.Errorf("%s is %s in components.mod but %s in go.mod: run make update-components", path, version, other)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared: is this the right file?", shared)
	}
	for path, version := range components {
		if want := "v0" + strings.TrimPrefix(KubernetesVersion(), "v1"); isStaging(path) && version != want {
			t.Errorf("%s is %s, want %s as in Kubernetes %s", path, version, want, KubernetesVersion())
		}
	}
}

// The module must stand by itself: a replace line would point at a directory that package unpack does not write.
func TestModuleHasNoReplace(t *testing.T) {
	if mod := parse(t, "components.mod"); len(mod.Replace) > 0 {
		t.Errorf("replace lines: %v", mod.Replace)
	}
}

func TestKeyIsAFileName(t *testing.T) {
	if key := Key(); len(key) != 16 || key != Key() || strings.Trim(key, "0123456789abcdef") != "" {
		t.Errorf("Key() = %q, want 16 stable hexadecimal digits", key)
	}
}

// isStaging says whether a module is published from Kubernetes' own repository and therefore carries its version.
func isStaging(path string) bool {
	switch path {
	case "k8s.io/klog/v2", "k8s.io/kube-openapi", "k8s.io/utils", "k8s.io/gengo/v2", "k8s.io/system-validators", KubernetesModule:
		return false
	}
	return strings.HasPrefix(path, "k8s.io/")
}

func requires(t *testing.T, file string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, r := range parse(t, file).Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	return versions
}

func parse(t *testing.T, file string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// TestExecutable: a package at the root of a module of a later major version is called as the directory above it.
func TestExecutable(t *testing.T) {
	t.Parallel()
	for _, c := range Components() {
		want := c.Name
		if c.Name == "etcd" {
			want = "server"
		}
		if got := c.Executable(); got != want {
			t.Errorf("%s: %q, want %q", c.Package, got, want)
		}
	}
}
