// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// TestServicesHoldNoNode: a cluster's bundle names the range of its Services, unless the
// user names ranges, and a cluster that is older than the field is still the same one.
func TestServicesHoldNoNode(t *testing.T) {
	const services = "10.96.0.0/16"
	given, err := bundle.Load([]byte(bundletest.File("namespace: tunnel")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := CompleteBundle(given, services)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Konnectivity.Server.NonNodeCIDRs; !slices.Equal(got, []string{services}) {
		t.Errorf("the ranges are %v", got)
	}
	if got := given.Konnectivity.Server.NonNodeCIDRs; got != nil {
		t.Errorf("the given bundle was changed: %v", got)
	}
	home := Home{Name: "dev"}
	if err := home.SameBundle(given, b, services); err != nil {
		t.Error(err)
	}
	if err := home.SameBundle(given, given, services); err != nil {
		t.Errorf("a cluster that is older than the field: %v", err)
	}
	own := given.Defaulted()
	own.Konnectivity.Server.NonNodeCIDRs = []string{"192.0.2.0/24"}
	if b, err = CompleteBundle(own, services); err != nil || !slices.Equal(b.Konnectivity.Server.NonNodeCIDRs, own.Konnectivity.Server.NonNodeCIDRs) {
		t.Errorf("the user's ranges became %v, %v", b, err)
	}
	if err := home.SameBundle(own, given, services); err == nil {
		t.Error("a bundle with other ranges counts as the same one")
	}
}
