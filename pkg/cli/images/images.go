// SPDX-License-Identifier: Apache-2.0

// Package images is the command "fairlead images".
package images

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
)

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var file, output string
	var operator bool
	cmd := &cobra.Command{
		Use: "images", Short: "List the images that a bundle needs",
		Long: `List the container images of a bundle, one per line. "make images" builds the images
of the default bundle. Load them into the cluster's nodes, or push them to a
registry and set the image fields of the bundle to their new names.`,
		Example: "  fairlead images | xargs -n1 kind load docker-image",
		GroupID: "bundle", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := read(file, streams.In)
			if err != nil {
				return err
			}
			if operator {
				list = append(list, v1alpha1.DefaultOperatorImage)
			}
			return ui.Write(streams.Out, output, list, func(out io.Writer) error {
				for _, image := range list {
					if _, err := fmt.Fprintln(out, image); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	bundleflag.Add(cmd.Flags(), &file, bundleflag.Default)
	cmd.Flags().BoolVar(&operator, "operator", false, "list the image of the operator, too")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func read(file string, in io.Reader) ([]string, error) {
	b, err := bundleflag.Load(file, in, os.Stderr)
	if err != nil {
		return nil, err
	}
	return bundle.Images(b), nil
}
