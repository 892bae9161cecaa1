// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
)

// TestProxyFromEnvironment: HTTPS_PROXY and NO_PROXY decide on the way to the servers as
// for upstream's agent, and reach the agent's configuration.
func TestProxyFromEnvironment(t *testing.T) {
	for _, c := range []struct{ https, no, host, want string }{
		{"", "", "servers.test", ""},
		{"http://proxy.test:3128", "", "servers.test", "http://proxy.test:3128"},
		{"proxy.test:3128", "", "servers.test", "http://proxy.test:3128"},
		{"https://me:p%40ss@proxy.test", "", "192.0.2.1", "https://me:p%40ss@proxy.test"},
		{"http://proxy.test:3128", "servers.test", "servers.test", ""},
		{"http://proxy.test:3128", ".test", "servers.test", ""},
		{"http://proxy.test:3128", "192.0.2.0/24", "192.0.2.1", ""},
		{"http://proxy.test:3128", "servers.test:8091", "servers.test", ""},
		{"http://proxy.test:3128", "servers.test:443", "servers.test", "http://proxy.test:3128"},
		{"http://proxy.test:3128", "", "127.0.0.1", ""},
		{"socks5://proxy.test", "*", "servers.test", ""},
	} {
		setProxy(t, c.https, c.no)
		o := parse(t, "--proxy-server-host="+c.host)
		cfg, err := o.config(t.Context(), agent.NewMetrics())
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		u, err := cfg.Proxy(cfg.Address)
		got := ""
		if u != nil {
			got = u.String()
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: proxy %q, %v", c, got, err)
		}
	}
}

// TestProxyIsChecked: a proxy that cannot be used ends the start instead of being ignored,
// and no message has its password.
func TestProxyIsChecked(t *testing.T) {
	for value, want := range map[string]string{
		"http://me:s3#cret@proxy.test:3128": "percent-encode",
		"http://me:s3cret@":                 "HTTPS_PROXY is not the URL of a proxy",
		"http://me:s3cret@:3128":            "HTTPS_PROXY is not the URL of a proxy",
		"http://%zz":                        "HTTPS_PROXY is not the URL of a proxy",
		"socks5://me:s3cret@proxy.test":     `scheme "socks5"`,
	} {
		setProxy(t, value, "")
		_, err := parse(t, "--proxy-server-host=servers.test").config(t.Context(), agent.NewMetrics())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want %q and no password", value, err, want)
		}
	}
}

func setProxy(t *testing.T, https, no string) {
	t.Helper()
	for name, value := range map[string]string{"HTTPS_PROXY": https, "https_proxy": "", "NO_PROXY": no, "no_proxy": ""} {
		t.Setenv(name, value)
	}
}
