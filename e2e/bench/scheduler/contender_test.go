// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestArrangements: each is what its name says, so that the table compares what it claims to.
func TestArrangements(t *testing.T) {
	for _, a := range arrangements() {
		data, err := a.config("/kubeconfig")
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		config := string(data)
		if got := strings.Contains(config, "name: ForeignNominations"); got != a.nominations || got == strings.Contains(a.name, "without ForeignNominations") {
			t.Errorf("%s: ForeignNominations is there: %v", a.name, got)
		}
		if got := strings.Contains(config, "addedAffinity"); got != a.partitioned || got != strings.HasPrefix(a.name, "partitioned") {
			t.Errorf("%s: addedAffinity is there: %v", a.name, got)
		}
		own, theirs := a.pod("x", "fairlead-spread", 0), a.pod("x", "default-scheduler", 1)
		if got := len(own.Spec.Tolerations) > 0; got != a.partitioned || len(theirs.Spec.Tolerations) > 0 {
			t.Errorf("%s: our pod tolerates the taint: %v, the other: %v", a.name, got, theirs.Spec.Tolerations)
		}
		if got := theirs.Spec.PriorityClassName != ""; got != a.preemption || own.Spec.PriorityClassName != "" {
			t.Errorf("%s: their pod is urgent: %v, ours: %q", a.name, got, own.Spec.PriorityClassName)
		}
	}
}

// TestContenders: all have a configuration, the limits that the table says, and names that -only can tell apart.
func TestContenders(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range contenders() {
		data, err := c.config("/kubeconfig")
		if err != nil {
			t.Fatalf("%s/%s: %v", c.workload, c.name, err)
		}
		config := string(data)
		if !strings.Contains(config, "schedulerName: "+c.profile) {
			t.Errorf("%s/%s does not serve %s:\n%s", c.workload, c.name, c.profile, config)
		}
		if got := strings.Contains(config, "qps: 500"); got == (c.name == documented) {
			t.Errorf("%s/%s has 500 requests a second: %v", c.workload, c.name, got)
		}
		if seen[c.workload+"/"+c.name] {
			t.Errorf("%s/%s is there twice", c.workload, c.name)
		}
		seen[c.workload+"/"+c.name] = true
	}
	if got := (options{only: "batch,services/stock"}).chosen(); len(got) != 4 {
		t.Errorf("-only batch,services/stock chooses %d contenders, want 4", len(got))
	}
	if got := (options{}).chosen(); len(got) != len(contenders()) {
		t.Errorf("without -only %d of %d contenders are chosen", len(got), len(contenders()))
	}
}
