// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// CommandName is the subcommand of fairlead-scheduler.
const CommandName = "tunnel-condition"

// Flags of the command, which the bundle renders.
const (
	FlagNamespace = "agent-namespace"
	FlagSelector  = "agent-selector"
	FlagHealth    = "health-address"
)

// Requests to the API server. At the start every node gets its condition, one request each, and meanwhile TunnelReach in
// mode Require would place all Pods on the few nodes that have it already. With client-go's default of 5 requests a
// second that would take minutes.
const (
	qps   = 100
	burst = 200
)

// parseSelector also rejects a selector that matches all Pods: every node would seem to have an agent.
func parseSelector(selector string) (labels.Selector, error) {
	const remedy = "give a label selector such as k8s-app=konnectivity-agent"
	agents, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("--%s=%q: %w; %s", FlagSelector, selector, err, remedy)
	}
	if agents.Empty() {
		return nil, fmt.Errorf("--%s selects every Pod as an agent; %s", FlagSelector, remedy)
	}
	return agents, nil
}

// NewCommand returns the subcommand that runs the controller.
func NewCommand() *cobra.Command {
	var kubeconfig, namespace, selector, health string
	cmd := &cobra.Command{
		Use:   CommandName,
		Short: "Keep the condition TunnelReady of nodes from the readiness of Konnectivity agents",
		Args:  cobra.NoArgs,
		// This command does not use the scheduler's PersistentPreRunE, which sets feature gates.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(cmd *cobra.Command, _ []string) error {
			agents, err := parseSelector(selector)
			if err != nil {
				return err
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("load the kubeconfig: %w", err)
			}
			config.QPS, config.Burst = qps, burst
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			pods, err := Pods(client, namespace, agents)
			if err != nil {
				return err
			}
			controller, err := New(client, pods)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if health != "" {
				server, err := listen(ctx, health, controller)
				if err != nil {
					return fmt.Errorf("--%s: %w", FlagHealth, err)
				}
				defer func() { _ = server.Close() }()
			}
			return controller.Run(ctx)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "file with the API server's address and an identity; default: the Pod's own")
	cmd.Flags().StringVar(&namespace, FlagNamespace, "kube-system", "namespace of the agents")
	cmd.Flags().StringVar(&selector, FlagSelector, "k8s-app=konnectivity-agent", "label selector of the agents' Pods")
	cmd.Flags().StringVar(&health, FlagHealth, "", "address such as :8095 on which to serve /livez, /readyz and /metrics without encryption; default: nowhere")
	return cmd
}
