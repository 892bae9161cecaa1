// Package version is the command "fairlead version".
package version

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/deploy/components"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/version"
)

// info is this program and what it runs.
type info struct {
	version.Info `json:",inline"`
	// Components are the programs of an embedded cluster.
	Components map[string]string `json:"components"`
}

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return run(streams, output) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func run(streams genericiooptions.IOStreams, output string) error {
	v := info{Info: version.Get(), Components: map[string]string{}}
	for _, c := range components.Components() {
		v.Components[c.Name] = c.Version
	}
	return ui.Write(streams.Out, output, v, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "fairlead %s\nKubernetes %s, etcd %s, kwok %s\n",
			v.Info, v.Components["kube-apiserver"], v.Components["etcd"], v.Components["kwok"])
		return err
	})
}
