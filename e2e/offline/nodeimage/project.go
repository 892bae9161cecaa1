// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// buildProject makes the last stage: this project's images on top.
func (b *builder) buildProject(ctx context.Context, below, tag string) error {
	images, err := imagetar.Project(b.binDir)
	if err != nil {
		return err
	}
	return b.step("Importing this project's images", func() error {
		return b.inContainer(ctx, below, tag, func(c container) error {
			return c.withContainerd(ctx, func() error {
				list := ""
				for _, img := range images {
					if err := c.importImage(ctx, img); err != nil {
						return err
					}
					list += img.Name() + " " + img.Digest() + "\n"
				}
				layer, err := imagetar.Files(imagetar.File{Name: strings.TrimPrefix(nodeimage.ImageList, "/"), Data: []byte(list)})
				if err != nil {
					return err
				}
				return c.add(ctx, layer)
			})
		})
	})
}
