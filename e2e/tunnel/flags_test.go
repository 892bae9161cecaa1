// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"testing"

	"github.com/spf13/pflag"
	upagentopts "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	upserveropts "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	agentapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/agent/app"
	serverapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/server/app"
)

// TestFlags compares our flags with those of upstream's commands, which this
// module pins: all are there, with the same type and default.
// It observes KON-35, KON-38, KON-40, KON-51, KON-67 and KON-77 of docs/requirements.md.
// It also observes OLD-21 and OLD-22 of docs/requirements.md.
func TestFlags(t *testing.T) {
	t.Setenv("PROXY_SERVER_ID", "id")
	t.Setenv("PROXY_AGENT_ID", "id")
	for _, c := range []struct {
		name      string
		ours, ref *pflag.FlagSet
	}{
		{"server", serverapp.NewCommand().Flags(), upserveropts.NewProxyRunOptions().Flags()},
		{"agent", agentapp.NewCommand().Flags(), upagentopts.NewGrpcProxyAgentOptions().Flags()},
	} {
		n := 0
		c.ref.VisitAll(func(ref *pflag.Flag) {
			n++
			f := c.ours.Lookup(ref.Name)
			if f == nil {
				t.Errorf("%s: --%s is missing", c.name, ref.Name)
				return
			}
			if f.DefValue != ref.DefValue || f.Value.Type() != ref.Value.Type() {
				t.Errorf("%s: --%s is %s %q, upstream's is %s %q", c.name, ref.Name, f.Value.Type(), f.DefValue, ref.Value.Type(), ref.DefValue)
			}
		})
		if n < 25 {
			t.Errorf("%s: upstream has only %d flags", c.name, n)
		}
		if v := c.ours.Lookup("v"); v == nil || v.DefValue != "4" && v.Value.String() != "4" {
			t.Errorf("%s: --v does not default to 4", c.name)
		}
	}
}

// flagOptions are those of a command of ours or of upstream's.
type flagOptions struct {
	flags    *pflag.FlagSet
	validate func() error
}

// TestValidation compares what both refuse.
// It observes KON-38, KON-42 and KON-69 of docs/requirements.md.
// It also observes OLD-22 of docs/requirements.md.
func TestValidation(t *testing.T) {
	t.Setenv("PROXY_SERVER_ID", "id")
	t.Setenv("PROXY_AGENT_ID", "id")
	for _, c := range []struct {
		name      string
		ours, ref func() flagOptions
		cases     map[string][]string
	}{
		{"server", serverOptions, upstreamServerOptions, serverArguments},
		{"agent", agentOptions, upstreamAgentOptions, agentArguments},
	} {
		refused := 0
		for name, args := range c.cases {
			ours, ref := c.ours(), c.ref()
			if err := ours.flags.Parse(args); err != nil {
				t.Fatal(err)
			}
			if err := ref.flags.Parse(args); err != nil {
				t.Fatal(err)
			}
			got, want := ours.validate(), ref.validate()
			if (got == nil) != (want == nil) {
				t.Errorf("%s, %s: ours %v, upstream %v", c.name, name, got, want)
			}
			if want != nil {
				refused++
			}
		}
		if refused == 0 || refused == len(c.cases) {
			t.Errorf("%s: upstream refuses %d of %d", c.name, refused, len(c.cases))
		}
	}
}

func serverOptions() flagOptions {
	o, fs := serverapp.NewOptions(), pflag.NewFlagSet("ours", pflag.ContinueOnError)
	o.AddFlags(fs)
	return flagOptions{fs, o.Validate}
}

func upstreamServerOptions() flagOptions {
	o := upserveropts.NewProxyRunOptions()
	return flagOptions{o.Flags(), o.Validate}
}

func agentOptions() flagOptions {
	o, fs := agentapp.NewOptions(), pflag.NewFlagSet("ours", pflag.ContinueOnError)
	o.AddFlags(fs)
	return flagOptions{fs, o.Validate}
}

func upstreamAgentOptions() flagOptions {
	o := upagentopts.NewGrpcProxyAgentOptions()
	return flagOptions{o.Flags(), o.Validate}
}

var serverArguments = map[string][]string{
	"uds with port":     {"--uds-name=/tmp/s"},
	"tcp without CA":    {"--server-port=8090"},
	"bad mode":          {"--uds-name=/tmp/s", "--server-port=0", "--mode=x"},
	"ephemeral port":    {"--uds-name=/tmp/s", "--server-port=0", "--agent-port=50000"},
	"reserved port":     {"--uds-name=/tmp/s", "--server-port=0", "--health-port=80"},
	"half of the auth":  {"--uds-name=/tmp/s", "--server-port=0", "--agent-namespace=x"},
	"strategy":          {"--uds-name=/tmp/s", "--server-port=0", "--proxy-strategies=x"},
	"channel":           {"--uds-name=/tmp/s", "--server-port=0", "--xfr-channel-size=0"},
	"tls version":       {"--uds-name=/tmp/s", "--server-port=0", "--tls-min-version=1.2"},
	"cipher":            {"--uds-name=/tmp/s", "--server-port=0", "--cipher-suites=x"},
	"contention only":   {"--uds-name=/tmp/s", "--server-port=0", "--enable-contention-profiling"},
	"negative grace":    {"--uds-name=/tmp/s", "--server-port=0", "--graceful-shutdown-timeout=-1s"},
	"key without cert":  {"--uds-name=/tmp/s", "--server-port=0", "--cluster-key=/dev/null"},
	"bad lease label":   {"--uds-name=/tmp/s", "--server-port=0", "--enable-lease-controller", "--lease-label=a"},
	"missing file":      {"--uds-name=/tmp/s", "--server-port=0", "--kubeconfig=/does/not/exist"},
	"fine":              {"--uds-name=/tmp/s", "--server-port=0"},
	"fine, http":        {"--uds-name=/tmp/s", "--server-port=0", "--mode=http-connect", "--proxy-strategies=destHost,default"},
	"fine, old ciphers": {"--uds-name=/tmp/s", "--server-port=0", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
}

var agentArguments = map[string][]string{
	"fine":                   {},
	"fine, with files":       {"--agent-cert=/dev/null", "--agent-key=/dev/null", "--ca-cert=/dev/null", "--service-account-token-path=/dev/null"},
	"fine, identifiers":      {"--agent-identifiers=ipv4=1.2.3.4&ipv6=fd00::1&host=node&cidr=10.0.0.0/8&default-route=true"},
	"fine, counts":           {"--count-server-leases", "--lease-label=a=b,c=d", "--server-count-source=max"},
	"fine, profiles":         {"--enable-profiling", "--enable-contention-profiling"},
	"label without counting": {"--lease-label=a=b=c"},
	"no count source":        {"--server-count-source="},
	"key without cert":       {"--agent-key=/dev/null"},
	"cert without key":       {"--agent-cert=/dev/null"},
	"missing cert":           {"--agent-cert=/does/not/exist", "--agent-key=/dev/null"},
	"missing CA":             {"--ca-cert=/does/not/exist"},
	"missing token":          {"--service-account-token-path=/does/not/exist"},
	"missing kubeconfig":     {"--kubeconfig=/does/not/exist"},
	"no port":                {"--proxy-server-port=0"},
	"negative health port":   {"--health-server-port=-1"},
	"no admin port":          {"--admin-server-port=0"},
	"channel":                {"--xfr-channel-size=0"},
	"contention only":        {"--enable-contention-profiling"},
	"interval over its cap":  {"--sync-interval=11s"},
	"kind of identifier":     {"--agent-identifiers=mac=1"},
	"not a query":            {"--agent-identifiers=%zz"},
	"bad label":              {"--count-server-leases", "--lease-label=a=b=c"},
	"label without value":    {"--count-server-leases", "--lease-label=a"},
	"no label":               {"--count-server-leases", "--lease-label="},
	"bad count source":       {"--server-count-source=min"},
}
