package tunnel

import (
	"testing"

	"github.com/spf13/pflag"
	upagentopts "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	upserveropts "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agentapp"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/serverapp"
)

// TestFlags compares our flags with those of upstream's commands, which this
// module pins: all are there, with the same type and default.
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

// TestValidation compares what both refuse.
func TestValidation(t *testing.T) {
	for name, args := range map[string][]string{
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
		"missing file":      {"--uds-name=/tmp/s", "--server-port=0", "--kubeconfig=/does/not/exist"},
		"fine":              {"--uds-name=/tmp/s", "--server-port=0"},
		"fine, http":        {"--uds-name=/tmp/s", "--server-port=0", "--mode=http-connect", "--proxy-strategies=destHost,default"},
		"fine, old ciphers": {"--uds-name=/tmp/s", "--server-port=0", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
	} {
		ours, ref := serverapp.NewOptions(), upserveropts.NewProxyRunOptions()
		fs, rfs := pflag.NewFlagSet("ours", pflag.ContinueOnError), ref.Flags()
		ours.AddFlags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		if err := rfs.Parse(args); err != nil {
			t.Fatal(err)
		}
		got, want := ours.Validate(), ref.Validate()
		if (got == nil) != (want == nil) {
			t.Errorf("%s: ours %v, upstream %v", name, got, want)
		}
	}
}
