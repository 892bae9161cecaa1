// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	upagentopts "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	upserveropts "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	agentapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/agent/app"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	serverapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/server/app"
)

// TestHelpNamesVariables: the help of the server's flags names each environment variable that sets a default.
func TestHelpNamesVariables(t *testing.T) {
	source, err := os.ReadFile("settings/variables.go")
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	serverapp.NewOptions().AddFlags(flags)
	variables := regexp.MustCompile(`= "(FAIRLEAD_[A-Z_]+)"`).FindAllSubmatch(source, -1)
	for _, name := range variables {
		if !strings.Contains(flags.FlagUsages(), string(name[1])) {
			t.Errorf("no flag's help names %s", name[1])
		}
	}
	if len(variables) < 9 {
		t.Errorf("found only %d variables", len(variables))
	}
}

// TestDocs: docs/tunnel.md names each flag and metric that upstream does not have.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/tunnel.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	serverFlags, agentFlags := pflag.NewFlagSet("server", pflag.ContinueOnError), pflag.NewFlagSet("agent", pflag.ContinueOnError)
	serverapp.NewOptions().AddFlags(serverFlags)
	agentapp.NewOptions().AddFlags(agentFlags)
	for _, c := range []struct{ ours, ref *pflag.FlagSet }{
		{serverFlags, upserveropts.NewProxyRunOptions().Flags()}, {agentFlags, upagentopts.NewGrpcProxyAgentOptions().Flags()},
	} {
		c.ours.VisitAll(func(f *pflag.Flag) {
			if c.ref.Lookup(f.Name) == nil && !strings.Contains(doc, "`--"+f.Name+"`") {
				t.Errorf("--%s is not in docs/tunnel.md", f.Name)
			}
		})
	}
	var all strings.Builder
	server.NewMetrics().Registry.Write(&all)
	agent.NewMetrics().Registry.Write(&all)
	for line := range strings.Lines(all.String()) {
		name, ok := strings.CutPrefix(line, "# TYPE fairlead_")
		if name, _, _ = strings.Cut(name, " "); ok && !strings.Contains(doc, "`fairlead_"+name) {
			t.Errorf("fairlead_%s is not in docs/tunnel.md", name)
		}
	}
}
