// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestUnauthenticatedAgents: a server warns if agents of other machines are not
// authenticated, and only then.
func TestUnauthenticatedAgents(t *testing.T) {
	tokens := []string{"--agent-namespace=n", "--agent-service-account=s", "--authentication-audience=a"}
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--agent-bind-address=0.0.0.0"}, true},
		{[]string{"--agent-bind-address=::"}, true},
		{[]string{"--agent-bind-address=192.0.2.1"}, true},
		{[]string{"--agent-bind-address=127.0.0.1"}, false},
		{[]string{"--agent-bind-address=[::1]"}, false},
		{[]string{"--agent-bind-address=localhost"}, false},
		{[]string{"--cluster-ca-cert=ca"}, false},
		{tokens, false},
	} {
		if got := parse(t, c.args...).unauthenticated(); got != c.want {
			t.Errorf("%q: a warning: %v, want %v", c.args, got, c.want)
		}
	}
}

// TestAllowedClientNames: with names, a client with another certificate of the CA is
// refused; without, each certificate of the CA is good.
func TestAllowedClientNames(t *testing.T) {
	if err := parse(t, "--server-allowed-client-names=a").Validate(); err == nil {
		t.Error("names for clients over a socket are accepted")
	}
	t.Setenv(settings.AllowedClientNames, "a,b")
	if names := parse(t).AllowedClientNames; !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the variable allows %q", names)
	}
	if names := parse(t, "--server-allowed-client-names=c").AllowedClientNames; !slices.Equal(names, []string{"c"}) {
		t.Errorf("the flag does not override the variable: %q", names)
	}
	ca := tunneltest.NewCA(t, t.TempDir())
	crt, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
	for _, c := range []struct {
		flag, client string
		want         bool
	}{
		{"", "agent", true},
		{"kube-apiserver,other", "kube-apiserver", true},
		{"kube-apiserver,other", "other", true},
		{"kube-apiserver,other", "agent", false},
	} {
		o := parse(t, "--uds-name=", "--server-port=8090", "--server-cert="+crt, "--server-key="+key, "--server-ca-cert="+ca.File, "--server-allowed-client-names="+c.flag)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		cfg, err := o.frontTLS(server.NewMetrics())
		if err != nil {
			t.Fatal(err)
		}
		cert, certKey := ca.Issue(t, c.client, time.Now().Add(time.Hour))
		loader, err := tlsreload.NewLoader(tlsreload.Files{Cert: cert, Key: certKey, CA: ca.File}, logr.Logger{})
		if err != nil {
			t.Fatal(err)
		}
		err = shake(t, cfg, loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}))
		if (err == nil) != c.want {
			t.Errorf("names %q, client %q: %v, want accepted: %v", c.flag, c.client, err, c.want)
		}
	}
}

// shake makes a TLS connection and returns the server's error.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := tls.Dial("tcp", l.Addr().String(), client); err == nil {
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}()
	defer func() { <-done }()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	return tls.Server(raw, server).Handshake()
}
