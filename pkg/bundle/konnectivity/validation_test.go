// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestEveryOwnFlagIsReserved: extraArgs must not be able to set what we set, in
// any form of the bundle.
func TestEveryOwnFlagIsReserved(t *testing.T) {
	many := v1alpha1.New()
	many.Konnectivity.LeaseCounting = ptr.To(true)
	many.Konnectivity.Agent.Identifiers = "default-route=true"
	many.Konnectivity.Server.ProxyStrategies = []v1alpha1.ProxyStrategy{v1alpha1.StrategyDefaultRoute}
	tcp := v1alpha1.New()
	tcp.Konnectivity.Transport = v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131"}}
	for _, base := range []*v1alpha1.Bundle{v1alpha1.New(), many, tcp} {
		for _, f := range konnectivity.OwnServerFlags(base) {
			b := base.DeepCopy()
			b.Konnectivity.Server.ExtraArgs = []v1alpha1.Argument{{Name: f.Name, Value: "x"}}
			if errs := konnectivity.Validate(b); len(errs) == 0 {
				t.Errorf("server.extraArgs may set %s", f.Name)
			}
		}
		for _, f := range konnectivity.OwnAgentFlags(base) {
			b := base.DeepCopy()
			b.Konnectivity.Agent.ExtraArgs = []v1alpha1.Argument{{Name: f.Name, Value: "x"}}
			if errs := konnectivity.Validate(b); len(errs) == 0 {
				t.Errorf("agent.extraArgs may set %s", f.Name)
			}
		}
	}
}
