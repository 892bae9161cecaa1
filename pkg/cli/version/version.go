// SPDX-License-Identifier: Apache-2.0

// Package version is the command "fairlead version".
package version

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
)

// info is this program and what it runs.
type info struct {
	version.Info `json:",inline"`
	// Components are the programs of an embedded cluster.
	Components map[string]string `json:"components"`
	// Cluster is the one of the current context; absent without a context and with --client.
	Cluster *inCluster `json:"cluster,omitempty"`
}

type options struct {
	streams genericiooptions.IOStreams
	cluster clusterflags.Flags
	output  string
	client  bool
}

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, cluster: clusterflags.New()}
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and whether it fits the cluster",
		Long: `Print the version of this program and of what it runs, and of the cluster of the
current context, if there is one: the API server, servers, agents and schedulers,
and which of them do not fit together or are of another release than this program.`,
		Example: `  fairlead version
  fairlead version --client -o json   # without a cluster`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	o.cluster.AddFlags(f)
	f.StringVarP(&o.output, "output", "o", "", "json or yaml")
	f.BoolVar(&o.client, "client", false, "print the version of this program alone")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	v := info{Info: version.Get(), Components: map[string]string{}}
	for _, c := range components.Components() {
		v.Components[c.Name] = c.Version
	}
	var lookErr error
	if !o.client {
		v.Cluster, lookErr = o.look(ctx)
	}
	err := ui.Write(o.streams.Out, o.output, v, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "fairlead %s\nKubernetes %s, etcd %s, kwok %s\n",
			v.Info, v.Components["kube-apiserver"], v.Components["etcd"], v.Components["kwok"])
		if err != nil || v.Cluster == nil {
			return err
		}
		return v.Cluster.write(out)
	})
	return errors.Join(err, lookErr)
}
