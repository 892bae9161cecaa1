// SPDX-License-Identifier: Apache-2.0

// Package version tells which Fairlead a binary is. Call Get.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// modulePath is how this project's module is called in the build information of a binary.
const modulePath = "github.com/fairlead-dev/fairlead"

// version is stamped by the Makefile:
//
//	go build -ldflags "-X github.com/fairlead-dev/fairlead/pkg/internal/version.version=v1.2.3"
//
// It is empty in binaries that were built without, which `go install` does.
var version string

// Info describes a build.
type Info struct {
	// Version of Fairlead: the stamped one, else the module's as `go install` records it, else "v0.0.0-devel".
	Version string `json:"version"`
	// Kubernetes is the version of k8s.io/kubernetes that is linked in; empty if none is.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Konnectivity is the version of the linked sigs.k8s.io/apiserver-network-proxy; empty if none is.
	Konnectivity string `json:"konnectivity,omitempty"`
	// GoVersion built the binary, for example "go1.26.2".
	GoVersion string `json:"goVersion"`
	// Platform that the binary runs on, for example "linux/amd64".
	Platform string `json:"platform"`
}

// Get returns what is known about the running binary.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return fromBuild(version, build)
}

// String is Info in one line, for example "v1.2.3 (go1.26.2, linux/amd64)".
func (i Info) String() string {
	return fmt.Sprintf("%s (%s, %s)", i.Version, i.GoVersion, i.Platform)
}

func fromBuild(stamped string, build *debug.BuildInfo) Info {
	return Info{
		Version:      cmp.Or(stamped, moduleVersion(build, modulePath), "v0.0.0-devel"),
		Kubernetes:   moduleVersion(build, "k8s.io/kubernetes"),
		Konnectivity: moduleVersion(build, "sigs.k8s.io/apiserver-network-proxy"),
		GoVersion:    runtime.Version(),
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// moduleVersion returns the version of a module of the build, or "" if it is not part of it or is a working copy.
func moduleVersion(build *debug.BuildInfo, path string) string {
	for _, mod := range append([]*debug.Module{&build.Main}, build.Deps...) {
		if mod.Path != path {
			continue
		}
		if mod.Replace != nil {
			mod = mod.Replace
		}
		if mod.Version != "(devel)" {
			return mod.Version
		}
	}
	return ""
}
