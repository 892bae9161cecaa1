// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/cli/operatorflags"
)

const operatorLong = `Render the operator: the CustomResourceDefinitions of Bundle, SchedulerProfile and
TunnelPool, and a Deployment of fairlead-operator with its rights. The operator
applies the Bundle that you create, and is not part of it.

The output has no keys. The operator makes the certificate of its conversion webhook
and writes its CA into the definitions.

The command prints the same objects that "fairlead install --operator" installs. Use
"kubectl apply --server-side", because kubectl's annotation would repeat the
definitions.`

const operatorExamples = `  fairlead render operator | kubectl apply --server-side -f -`

func newOperatorCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var o operatorflags.Flags
	cmd := &cobra.Command{
		Use: "operator", Short: "Render the operator and its CustomResourceDefinitions", Long: operatorLong, Example: operatorExamples, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			objects, err := operator.Objects(o.Options())
			if err != nil {
				return fmt.Errorf("render the operator: %w", err)
			}
			return printYAML(streams.Out, objects)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
