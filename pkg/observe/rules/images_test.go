// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestImagesOfAnyRegistry proves that programs are taken for Fairlead's by the last part of their image's name, which a copy in another registry
// keeps, and by nothing else of it.
func TestImagesOfAnyRegistry(t *testing.T) {
	for image, ours := range map[string]bool{
		"fairlead-dev/konnectivity-agent:v0.1.0":                              true,
		"registry.corp/infra/konnectivity-agent:v0.1.0":                       true,
		"registry.corp:5000/konnectivity-agent@sha256:0123456789abcdef":       true,
		"registry.corp/fairlead/proxy-agent:v0.36.0":                          false,
		"registry.fairlead.example/kas-network-proxy/proxy-agent:v0.36.0":     false,
		"registry.k8s.io/kas-network-proxy/proxy-agent:v0.36.0":               false,
		"registry.corp/konnectivity-agent/proxy-agent:fairlead":               false,
		"quay.io/k0sproject/apiserver-network-proxy-agent:v0.36.0-fairlead.1": false,
	} {
		w := healthy(t)
		w.all(check.RoleAgent, func(p *observe.Program) { p.Image = image })
		other, rare := rules.Failed, rules.Warning
		if ours {
			other, rare = rules.OK, rules.OK
		}
		for id, want := range map[string]rules.Status{"FL-PRE-012": other, "FL-KON-031": rare} {
			if got := rules.Judge(w.Snapshot, rules.Options{Only: []string{id}, Before: id == "FL-PRE-012"}).Checks[0]; got.Status != want {
				t.Errorf("%s: %s is %s, want %s: %+v", image, id, got.Status, want, got.Findings)
			}
		}
	}
}
