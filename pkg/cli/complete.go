// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// complete registers what the shell offers for the flags of a command and all commands below it. A command's own registration stays.
func complete(cmd *cobra.Command) {
	for flag, values := range map[string]cobra.CompletionFunc{"name": completeNames, "context": completeContexts, "namespace": completeNamespaces} {
		register(cmd, flag, values)
	}
	if f := cmd.Flags().Lookup("output"); f != nil {
		if formats := formatsOf(f.Usage); formats != nil {
			register(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if cmd.Name() == "verify" {
		register(cmd, "only", completeVerifications)
	}
	for _, below := range cmd.Commands() {
		complete(below)
	}
}

func register(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if cmd.Flags().Lookup(flag) == nil {
		return
	}
	if _, own := cmd.GetFlagCompletionFunc(flag); !own {
		_ = cmd.RegisterFlagCompletionFunc(flag, values)
	}
}

// formatList is how the help of --output begins: "json, yaml or wide".
var formatList = regexp.MustCompile(`^[a-z]+(?:, [a-z]+)* or [a-z]+`)

// formatsOf reads the formats from the help of --output, where each command names its own; nil if it names a file.
func formatsOf(usage string) []string {
	list := formatList.FindString(usage)
	if list == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(list, " or ", ", "), ", ")
}

func completeVerifications(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, c := range check.All() {
		out = append(out, c.ID+"\t"+c.Title)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completionLimit is how long a shell waits for a cluster.
const completionLimit = 3 * time.Second

// completeNamespaces asks the cluster of --kubeconfig and --context, or the current one.
func completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	if f := cmd.Flags().Lookup("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	if f := cmd.Flags().Lookup("context"); f != nil {
		overrides.CurrentContext = f.Value.String()
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionLimit)
	defer cancel()
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, n := range list.Items {
		out = append(out, n.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func completeNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	set, err := providers.New(providers.Settings())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, _ := set.Clusters()
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts reads the kubeconfig of --kubeconfig, or the default one.
func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if f := cmd.Flags().Lookup("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	config, err := rules.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
