// Package images is the command "fairlead images".
package images

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
)

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use: "images", Short: "List the images that a bundle needs",
		Long: `Lists the container images of a bundle, one a line. "make images" builds those of
the default bundle; load or push them where the cluster's nodes find them, or
set the image fields of the bundle to where you pushed them.`,
		Example: "  fairlead images | xargs -n1 kind load docker-image",
		GroupID: "bundle", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := read(file)
			if err != nil {
				return err
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
	cmd.Flags().StringVarP(&file, "filename", "f", "", "Bundle file (default: the default bundle)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func read(file string) ([]string, error) {
	var data []byte
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, err
	}
	return bundle.Images(b), nil
}
