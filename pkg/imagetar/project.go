// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"fmt"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Repository and tag of the project's own images, as the default bundle and the operator have them.
const (
	repository = "fairlead-dev/"
	nonRoot    = "65532:65532"
)

// programs are the project's images: the Dockerfile says the same, and says why; a test compares the two.
var programs = []struct {
	name string // of the image and of the binary
	path string // in the image
	user string
}{
	{"fairlead", "/fairlead", nonRoot},
	{"fairlead-scheduler", "/usr/local/bin/kube-scheduler", nonRoot},
	{"konnectivity-server", "/proxy-server", "0:0"},
	{"konnectivity-agent", "/proxy-agent", nonRoot},
	{"fairlead-apiserver", "/fairlead-apiserver", nonRoot},
	{"fairlead-operator", "/fairlead-operator", nonRoot},
}

// ProjectNames are the full names of the images that Project makes.
func ProjectNames() []string {
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, "docker.io/"+repository+p.name+":"+v1alpha1.ImageTag)
	}
	return names
}

// Project makes the images of this project's programs from the binaries in a directory, which `make build` fills.
func Project(binDir string) ([]*Image, error) { return ProjectFor("", binDir) }

// ProjectFor is Project for binaries of another architecture.
func ProjectFor(architecture, binDir string) ([]*Image, error) {
	return project(architecture, binDir, func(string) bool { return true })
}

// ProjectOnly makes those of Project's images whose full names are wanted. It needs no other
// binaries.
func ProjectOnly(binDir string, wanted func(name string) bool) ([]*Image, error) {
	return project("", binDir, wanted)
}

func project(architecture, binDir string, wanted func(name string) bool) ([]*Image, error) {
	images := make([]*Image, 0, len(programs))
	for i, p := range programs {
		if !wanted(ProjectNames()[i]) {
			continue
		}
		img, err := Program(Config{
			Name: repository + p.name + ":" + v1alpha1.ImageTag, Entrypoint: []string{p.path}, User: p.user, Architecture: architecture,
		}, p.path, filepath.Join(binDir, p.name))
		if err != nil {
			return nil, fmt.Errorf("%w (\"make build\" makes bin/%s)", err, p.name)
		}
		images = append(images, img)
	}
	return images, nil
}
