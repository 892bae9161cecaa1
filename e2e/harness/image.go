// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"

	"sigs.k8s.io/kind/pkg/cluster/nodeutils"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// loadTool makes an image of testpod and gives it to all nodes.
func (c *Cluster) loadTool(path string) error {
	files, err := imagetar.Files(
		imagetar.File{Name: podTool, Source: path, Mode: 0o755},
		imagetar.File{Name: "/bin/tar", Mode: fs.ModeSymlink, Link: podTool},
		imagetar.File{Name: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	)
	if err != nil {
		return err
	}
	image, err := imagetar.New(imagetar.Config{Name: Image, Entrypoint: []string{podTool}, User: "65535:65535"}, files)
	if err != nil {
		return err
	}
	return c.load(image)
}

// LoadProject gives the images of the programs under test to all nodes.
func (c *Cluster) LoadProject() error {
	images, err := imagetar.Project(c.Bin)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := c.load(image); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) load(image *imagetar.Image) error {
	for _, node := range c.Nodes.All() {
		r, w := io.Pipe()
		go func() {
			_, err := image.WriteTo(w)
			_ = w.CloseWithError(err)
		}()
		if err := nodeutils.LoadImageArchive(node, r); err != nil {
			_ = r.CloseWithError(err)
			return fmt.Errorf("loading image %s into %s: %w", image.ShortName(), node, err)
		}
	}
	return nil
}

// ToolImage is an image with one static program, and busybox where its users want a shell.
type ToolImage struct {
	Name string
	// Program is its file on this machine, and Path its place in the image and the entrypoint. Both may be empty.
	Program, Path string
	Cmd           []string
	// Files are further files of the image, and their files on this machine.
	Files map[string]string
	// Busybox is a static busybox of this machine, or empty.
	Busybox string
}

// LoadTool makes the image and gives it to all nodes.
func (c *Cluster) LoadTool(ctx context.Context, t ToolImage) error {
	files := []imagetar.File{{Name: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	config := imagetar.Config{Name: t.Name, Cmd: t.Cmd}
	if t.Program != "" {
		files = append(files, imagetar.File{Name: t.Path, Source: t.Program, Mode: 0o755})
		config.Entrypoint = []string{t.Path}
	}
	for name, source := range t.Files {
		files = append(files, imagetar.File{Name: name, Source: source, Mode: 0o755}) // some are programs
	}
	if t.Busybox != "" {
		files = append(files, imagetar.File{Name: "/bin/busybox", Source: t.Busybox, Mode: 0o755})
		applets, err := exec.CommandContext(ctx, t.Busybox, "--list").Output()
		if err != nil {
			return fmt.Errorf("listing what %s can do: %w", t.Busybox, err)
		}
		for _, name := range strings.Fields(string(applets)) {
			if name != "busybox" {
				files = append(files, imagetar.File{Name: "/bin/" + name, Mode: fs.ModeSymlink, Link: "/bin/busybox"})
			}
		}
	}
	layer, err := imagetar.Files(files...)
	if err != nil {
		return err
	}
	image, err := imagetar.New(config, layer)
	if err != nil {
		return err
	}
	return c.load(image)
}
