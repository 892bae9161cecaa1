// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
)

// drain is how long API servers may take to learn that a replica ends. It is well below the 30
// seconds that a Pod has to end.
const drain = 5 * time.Second

// NewCommand makes the command fairlead-operator.
func NewCommand() *cobra.Command {
	o := Options{Version: version.Get().Version, Drain: drain}
	var kubeconfig string
	cmd := &cobra.Command{
		Use: "fairlead-operator", Short: "Keep a cluster as its Bundle says", Args: cobra.NoArgs,
		Example: `  fairlead-operator                 # in a Pod of "fairlead render operator"
  # elsewhere, for an API server that reaches this machine as 10.0.0.5
  fairlead-operator --kubeconfig=admin.conf --webhook-url=https://10.0.0.5:9443/convert --webhook-names=10.0.0.5`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("--kubeconfig: %w", err)
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty uses the Pod's ServiceAccount")
	f.StringVar(&o.Namespace, "namespace", operator.DefaultNamespace, "namespace of the operator's Lease and Secret")
	f.StringVar(&o.WebhookAddress, "webhook-bind-address", address(operator.WebhookPort), "address at which the conversion webhook listens")
	f.StringVar(&o.WebhookService, "webhook-service", operator.Name, "Service in --namespace by which the API server calls the webhook")
	f.StringVar(&o.WebhookURL, "webhook-url", "", "URL at which the API server calls the webhook, instead of --webhook-service")
	f.StringSliceVar(&o.WebhookNames, "webhook-names", nil, "names and addresses in the webhook's certificate besides the Service's name")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", address(operator.MetricsPort), `address at which metrics are served over TLS, to users who may get /metrics; "0" turns them off`)
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", address(operator.HealthPort), `address at which /healthz and /readyz are served; "0" turns them off`)
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "elect one of several replicas that reconciles; all serve the webhook")
	f.StringSliceVar(&o.IgnorePreflight, "ignore-preflight-errors", nil, `preflight checks whose errors are reported as warnings, for example "version,lease"`)
	o.Bounds.AddFlags(f, "")
	return cmd
}

func address(port int32) string { return fmt.Sprintf(":%d", port) }
