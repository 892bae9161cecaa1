package imagetar

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Repository and tag of the project's own images, as the default bundle has them.
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
}

// ProjectNames are the full names of the images that Project makes.
func ProjectNames() []string {
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, "docker.io/"+repository+p.name+":"+v1alpha1.ImageTag)
	}
	return names
}

// ErrBinary says that a program cannot run in an image that holds nothing else.
var ErrBinary = errors.New("not a static Linux program")

// Project makes the images of this project's programs from the binaries in a directory, which `make build` fills.
func Project(binDir string) ([]*Image, error) {
	images := make([]*Image, 0, len(programs))
	for _, p := range programs {
		img, err := Program(Config{
			Name: repository + p.name + ":" + v1alpha1.ImageTag, Entrypoint: []string{p.path}, User: p.user,
		}, p.path, filepath.Join(binDir, p.name))
		if err != nil {
			return nil, fmt.Errorf("%w (\"make build\" makes bin/%s)", err, p.name)
		}
		images = append(images, img)
	}
	return images, nil
}

// Program makes an image that holds one static binary, and files beside it if need be.
func Program(c Config, path, binary string, more ...File) (*Image, error) {
	if err := static(binary); err != nil {
		return nil, fmt.Errorf("image %s: %w", c.Name, err)
	}
	layer, err := Files(append(more, File{Name: path, Mode: 0o755, Source: binary})...)
	if err != nil {
		return nil, err
	}
	return New(c, layer)
}

// static tells whether a file is a Linux program that needs no other file.
func static(binary string) error {
	file, _, err := open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	program, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBinary, binary, err)
	}
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%w: %s is linked dynamically: build it with CGO_ENABLED=0", ErrBinary, binary)
		}
	}
	return nil
}
