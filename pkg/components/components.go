// SPDX-License-Identifier: Apache-2.0

package components

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

//go:embed components.mod
var modFile []byte

//go:embed components.sum
var sumFile []byte

// The modules that the components come from.
const (
	KubernetesModule = "k8s.io/kubernetes"
	EtcdModule       = "go.etcd.io/etcd/server/v3"
	KwokModule       = "sigs.k8s.io/kwok"
)

// ErrUnknown says that no component has the wanted name.
var ErrUnknown = errors.New("unknown component")

// Component is one program that is built from the pinned module and run as a process.
type Component struct {
	// Name of the program and of its binary, for example "kube-apiserver" or "etcd".
	Name string
	// Package is the import path of its main package.
	Package string
	// Version of the module that holds the package, with the leading "v".
	Version string
	// LDFlags is the value for `go build -ldflags`; it stamps the version the way upstream's own build does.
	LDFlags string
}

// Executable is the name of the file that `go build -o DIRECTORY/` writes.
func (c Component) Executable() string {
	prefix, _, ok := module.SplitPathVersion(c.Package)
	if !ok {
		prefix = c.Package
	}
	return path.Base(prefix)
}

// Components lists what components.mod names in its tool directives, sorted by name. Versions come from the same file
// and are written down nowhere else.
func Components() []Component {
	mod, err := modfile.Parse("components.mod", modFile, nil)
	if err != nil {
		// The file is part of the program and is parsed by this package's tests.
		panic(fmt.Sprintf("embedded components.mod: %v", err))
	}
	components := make([]Component, 0, len(mod.Tool))
	for _, tool := range mod.Tool {
		components = append(components, newComponent(tool.Path, mod.Require))
	}
	slices.SortFunc(components, func(a, b Component) int { return strings.Compare(a.Name, b.Name) })
	return components
}

// Get returns the component of that name, or an error that wraps ErrUnknown.
func Get(name string) (Component, error) {
	for _, c := range Components() {
		if c.Name == name {
			return c, nil
		}
	}
	return Component{}, fmt.Errorf("%w %q", ErrUnknown, name)
}

// KubernetesVersion is the version of the control plane's components, for example "v1.36.3".
func KubernetesVersion() string {
	c, err := Get("kube-apiserver")
	if err != nil {
		panic(err) // checked by this package's tests
	}
	return c.Version
}

// Module returns what go.mod and go.sum of the module hold in which the components are built; package unpack writes them.
func Module() (mod, sum []byte) {
	return slices.Clone(modFile), slices.Clone(sumFile)
}

// Flags are the arguments of `go build` that all components share. They equal those of the Makefile: Go's build cache
// keeps packages apart that were compiled with different flags, and Kubernetes takes minutes to compile.
func Flags() []string {
	return []string{"-mod=readonly", "-trimpath", "-buildvcs=false"}
}

// Environ is what `go build` needs on top of the environment: no cgo, so that the binaries are static and no C compiler
// is needed; the flags in Flags alone, whatever the user's GOFLAGS say; and no go.work of a directory above.
func Environ() []string {
	return []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"}
}

// Key names a set of built components: it changes with the pinned module, the build flags, the platform, and the Go
// version that built this program. Use it as the name of a cache directory.
func Key() string {
	hash := sha256.New()
	field := func(parts ...string) {
		for _, part := range parts {
			fmt.Fprintf(hash, "%d:%s", len(part), part)
		}
	}
	field(string(modFile), string(sumFile), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	field(Flags()...)
	field(Environ()...)
	for _, c := range Components() {
		field(c.Name, c.Package, c.LDFlags)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func newComponent(pkg string, requires []*modfile.Require) Component {
	mod := moduleOf(pkg, requires)
	return Component{
		Name:    programName(pkg),
		Package: pkg,
		Version: mod.Version,
		LDFlags: ldflags(mod, requires),
	}
}

// programName is the last element of the import path, but for etcd, whose main package is the module's root.
func programName(pkg string) string {
	if pkg == EtcdModule {
		return "etcd"
	}
	return path.Base(pkg)
}

// moduleOf returns the required module with the longest path that is a prefix of the package's, as Go itself does.
func moduleOf(pkg string, requires []*modfile.Require) module.Version {
	var found module.Version
	for _, r := range requires {
		if (pkg == r.Mod.Path || strings.HasPrefix(pkg, r.Mod.Path+"/")) && len(r.Mod.Path) > len(found.Path) {
			found = r.Mod
		}
	}
	return found
}
