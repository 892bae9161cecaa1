package main

import (
	"context"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
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
				for _, img := range images {
					if err := c.importImage(ctx, img); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
}
