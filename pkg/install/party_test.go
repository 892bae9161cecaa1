// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"errors"
	"strings"

	"github.com/google/go-cmp/cmp"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// batchAlone is the example of docs/install.md for a cluster of `fairlead up`.
func batchAlone(b *v1alpha1.Bundle) {
	b.Scheduler.Name = "batch-scheduler"
	b.Scheduler.Profiles = []schedulerv1.KubeSchedulerProfile{{SchedulerName: ptr.To("batch-scheduler")}}
	b.Konnectivity.Enabled = ptr.To(false)
}

// testParties: in a cluster of `fairlead up`, installing, upgrading and uninstalling
// another bundle leaves every object of up as it is.
func testParties(e env) {
	ofUp := objects(e.t, nil)
	e.apply(ofUp, install.Options{Party: install.Provider, Force: true})
	before := e.versions()

	batch := objects(e.t, batchAlone)
	if r := e.apply(batch, install.Options{}); r.Count(install.Created) != len(batch) || len(r.Objects) != len(batch) {
		e.t.Errorf("install did more than create its %d objects: %+v", len(batch), r.Objects)
	}
	if c, err := install.Diff(e.t.Context(), e.cfg, batch); err != nil || len(c.Differences) != 0 || len(c.Problems) != 0 {
		e.t.Errorf("diff after install: %+v, %v", c, err)
	}
	if r := e.apply(ofUp, install.Options{Party: install.Provider, Force: true}); r.Count(install.Unchanged) != len(ofUp) || len(r.Objects) != len(ofUp) {
		e.t.Errorf("up again changed something: %+v", r.Objects)
	}
	e.uninstall()
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the objects of up are not as before (-want +got):\n%s", diff)
	}
}

// testPartiesCollide: an object of both bundles is refused, in both directions and
// with force, and the message says whose it is. Nothing is changed.
func testPartiesCollide(e env) {
	all, batch := objects(e.t, nil), objects(e.t, batchAlone)
	e.apply(all, install.Options{Party: install.Provider, Force: true})
	e.apply(batch, install.Options{})
	for _, tc := range []struct {
		party install.Party
		with  []string
	}{
		{install.Command, []string{"belongs to the bundle of `fairlead up`", "scheduler.name", "konnectivity.enabled: false"}},
		{install.Provider, []string{"belongs to the bundle that `fairlead install` installed", "fairlead uninstall"}},
	} {
		theirs := all
		if tc.party == install.Provider {
			theirs = batch
		}
		for _, force := range []bool{false, true} {
			before := e.versions()
			_, err := install.Apply(e.t.Context(), e.cfg, theirs, install.Options{Party: tc.party, Force: force}.Quick())
			var blocked *install.BlockedError
			if !errors.As(err, &blocked) {
				e.t.Fatalf("party %q, force %v: error %v, want a BlockedError", tc.party, force, err)
			}
			for _, p := range blocked.Problems {
				if p.Reason != install.ReasonOtherBundle {
					e.t.Errorf("party %q, force %v: %+v", tc.party, force, p)
				}
			}
			if len(blocked.Problems) != len(theirs) {
				e.t.Errorf("party %q, force %v: %d problems for %d objects", tc.party, force, len(blocked.Problems), len(theirs))
			}
			for _, want := range tc.with {
				if !strings.Contains(err.Error(), want) {
					e.t.Errorf("party %q, force %v: %q is not in: %v", tc.party, force, want, err)
				}
			}
			if diff := cmp.Diff(before, e.versions()); diff != "" {
				e.t.Errorf("party %q, force %v: something was changed:\n%s", tc.party, force, diff)
			}
		}
	}
}

// testPartiesOlder: a cluster whose bundle up applied under the command's name, as
// older releases did, is taken over by up; then neither a pruning install nor an
// uninstall deletes an object of it.
func testPartiesOlder(e env) {
	all, batch := objects(e.t, nil), objects(e.t, batchAlone)
	e.apply(all, install.Options{})
	e.apply(all, install.Options{Party: install.Provider, Force: true})
	r := e.apply(batch, install.Options{})
	if r.Count(install.Deleted) != 0 || r.Count(install.Released) != len(all) {
		e.t.Errorf("install deleted objects of up: %+v", r.Objects)
	}
	e.uninstall()
	e.wantExactlyBeside(all)
	if r := e.apply(all, install.Options{Party: install.Provider, Force: true}); r.Count(install.Unchanged) != len(all) {
		e.t.Errorf("what up has applied was changed: %+v", r.Objects)
	}
}

// wantExactlyBeside is wantExactly in a cluster with an inventory of up.
func (e env) wantExactlyBeside(all []component.Object) {
	e.t.Helper()
	got := e.names()
	delete(got, "ConfigMap kube-system/"+install.Provider.Inventory())
	if diff := cmp.Diff(wantNames(all), got); diff != "" {
		e.t.Errorf("objects in the cluster (-want +got):\n%s", diff)
	}
}
