// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"os"
	"path/filepath"
	"testing"

	upstreamapiserver "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// readEgress reads the rendered file as kube-apiserver does.
func readEgress(t *testing.T, b *v1alpha1.Bundle, path func(string) string) *upstreamapiserver.EgressSelectorConfiguration {
	t.Helper()
	data, err := apiserver.EgressSelectorConfigurationAt(b, path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "egress.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		t.Fatalf("kube-apiserver does not read it: %v\n%s", err, data)
	}
	return config
}

// TestTransportMatrix: the bundle accepts exactly the transports that both
// kube-apiserver and the server accept. GRPC needs a Unix socket; TCP needs
// HTTPConnect and TLS with a CA for client certificates.
// It observes KON-03 and KON-05 of docs/requirements.md.
// It also observes OLD-23 of docs/requirements.md.
func TestTransportMatrix(t *testing.T) {
	uds := &v1alpha1.UDSTransport{Path: "/run/tunnel/s.sock"}
	tcp := func(change func(*v1alpha1.TCPTransport)) *v1alpha1.TCPTransport {
		const dir = v1alpha1.DefaultPKIDir
		c := &v1alpha1.TCPTransport{
			URL: "https://127.0.0.1:8131", ClientCert: dir + "/c.crt", ClientKey: dir + "/c.key",
			CABundle: dir + "/ca.crt", ClientCA: dir + "/cca.crt", ServerCert: dir + "/s.crt", ServerKey: dir + "/s.key",
		}
		if change != nil {
			change(c)
		}
		return c
	}
	cases := map[string]struct {
		transport v1alpha1.Transport
		// protocols that work; all others must be refused.
		works map[v1alpha1.ProxyProtocol]bool
	}{
		"uds":     {v1alpha1.Transport{UDS: uds}, map[v1alpha1.ProxyProtocol]bool{"GRPC": true, "HTTPConnect": true}},
		"tcp":     {v1alpha1.Transport{TCP: tcp(nil)}, map[v1alpha1.ProxyProtocol]bool{"HTTPConnect": true}},
		"both":    {v1alpha1.Transport{UDS: uds, TCP: tcp(nil)}, nil},
		"neither": {v1alpha1.Transport{}, nil},
		"tcp, system roots": {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.CABundle = "" })},
			map[v1alpha1.ProxyProtocol]bool{"HTTPConnect": true}},
		"tcp, no client certificate": {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.ClientCert = "" })}, nil},
		"tcp, no client key":         {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.ClientKey = "" })}, nil},
		"tcp, no client CA":          {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.ClientCA = "" })}, nil},
		"tcp, other scheme":          {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.URL = "tcp://127.0.0.1:8131" })}, nil},
		// kube-apiserver would do it, but the server always wants a client
		// certificate.
		"tcp, plain http": {v1alpha1.Transport{TCP: tcp(func(c *v1alpha1.TCPTransport) { c.URL = "http://127.0.0.1:8131" })}, nil},
	}
	for name, tc := range cases {
		for _, protocol := range []v1alpha1.ProxyProtocol{"GRPC", "HTTPConnect", "Direct", "grpc", ""} {
			t.Run(name+" "+string(protocol), func(t *testing.T) {
				b := v1alpha1.New()
				b.Konnectivity.ProxyProtocol, b.Konnectivity.Transport = protocol, tc.transport
				errs := bundle.Validate(b)
				if got := len(errs) == 0; got != tc.works[protocol] {
					t.Fatalf("accepted: %t, want %t: %v", got, tc.works[protocol], errs.ToAggregate())
				}
				if len(errs) > 0 {
					return
				}
				paths := localPaths(t)
				if errs := egressselector.ValidateEgressSelectorConfiguration(readEgress(t, b, paths)); len(errs) > 0 {
					t.Errorf("kube-apiserver refuses it: %v", errs.ToAggregate())
				}
				o := serveroptions.NewProxyRunOptions()
				parse(t, o.Flags(), component.LocalProcess(konnectivity.Server(b), component.LocalOptions{Path: paths}).Args)
				if err := o.Validate(); err != nil {
					t.Errorf("the server refuses it: %v", err)
				}
			})
		}
	}
}
