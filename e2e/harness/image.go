// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"io"
	"io/fs"

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
