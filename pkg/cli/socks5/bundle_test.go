// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
)

// TestAcceptsArgumentsOfBundle: the program accepts what the bundle renders for its Pods, and finds
// nothing wrong with it.
func TestAcceptsArgumentsOfBundle(t *testing.T) {
	for name, config := range map[string]string{
		"Deployment": "gateway: {enabled: true, clientCertificates: true, rules: {}, allow: [192.0.2.0/24], deny: [':22'], extraArgs: [{name: drain-timeout, value: 30s}]}",
		"static Pod": "gateway: {enabled: true, form: StaticPod}",
		"over TCP": `gateway: {enabled: true, form: StaticPod}
konnectivity: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://127.0.0.1:8131', clientCert: /etc/kubernetes/pki/k.crt, clientKey: /etc/kubernetes/pki/k.key,
  clientCA: /etc/kubernetes/pki/kca.crt, caBundle: /etc/kubernetes/pki/ca.crt}}}`,
	} {
		b, err := bundle.Load([]byte(bundletest.File(config)))
		if err != nil {
			t.Fatal(err)
		}
		args := component.LocalProcess(gateway.Component(b), component.LocalOptions{}).Args
		if args[0] != "socks5" {
			t.Errorf("%s: the subcommand is missing in %q", name, args)
		}
		o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
		cmd := &cobra.Command{}
		o.addFlags(cmd)
		if err := cmd.Flags().Parse(args[1:]); err != nil || cmd.Flags().NArg() > 0 {
			t.Errorf("%s: %v, arguments %q", name, err, cmd.Flags().Args())
		}
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v: %q", name, err, args)
		}
	}
}
