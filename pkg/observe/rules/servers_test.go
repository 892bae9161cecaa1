// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// threeServers adds two servers like the one that is there, and returns the last one.
func (w *world) threeServers() *observe.Program {
	first := *w.find(check.RoleServer)
	setFlag(w.find(check.RoleServer), "--server-count=3")
	for _, node := range []string{"cp2", "cp3"} {
		p := first
		p.Pod = first.Pod.DeepCopy()
		p.Node, p.Pod.Spec.NodeName, p.Pod.Name = node, node, "konnectivity-server-"+node
		p.Name = "Pod " + p.Pod.Namespace + "/" + p.Pod.Name
		setFlag(&p, "--server-count=3")
		w.Programs.Value = append(w.Programs.Value, p)
		w.ServerMetrics[p.Name] = observe.Fact[observe.Metrics]{Value: maps.Clone(w.ServerMetrics[first.Name].Value)}
		w.Shown[p.Name] = w.Shown[first.Name]
	}
	return &w.Programs.Value[len(w.Programs.Value)-1]
}

// TestThreeServers proves that nothing is reported of three servers that are alike.
func TestThreeServers(t *testing.T) {
	w := healthy(t)
	w.threeServers()
	for _, r := range rules.Judge(w.Snapshot, rules.Options{}).Checks {
		if r.Status != rules.OK && r.Status != rules.Skipped {
			t.Errorf("%s is %s: %s %+v", r.ID, r.Status, r.Reason, r.Findings)
		}
	}
}

// serverFaults are those of one of several servers.
func serverFaults() []fault {
	third := func(arg string) func(w *world) { return func(w *world) { setFlag(w.threeServers(), arg) } }
	return []fault{
		{"FL-KON-007", false, third("--server-count=1")},
		{"FL-KON-008", false, third("--enable-lease-controller=true")},
		{"FL-KON-020", false, third("--mode=http-connect")},
		{"FL-KON-023", false, third("--agent-port=9999")},
		{"FL-KON-024", false, third("--agent-namespace=")},
		{"FL-KON-025", false, third("--authentication-audience=other")},
		{"FL-KON-026", false, func(w *world) {
			other := types.NamespacedName{Namespace: w.Bundle.Namespace, Name: "other"}
			w.Accounts.Value = append(w.Accounts.Value, other)
			setFlag(w.threeServers(), "--agent-service-account="+other.Name)
		}},
		{"FL-KON-030", false, third("--proxy-strategies=destHost")},
	}
}

// TestOtherServer proves that a finding of one of several servers names that one, and what agents have in its place.
func TestOtherServer(t *testing.T) {
	for _, f := range serverFaults() {
		w := healthy(t)
		f.do(w)
		found := only(w, f.id).Findings
		if f.id == "FL-KON-008" { // of Leases, not of a server
			continue
		}
		if len(found) != 1 || !strings.HasSuffix(found[0].Object, "konnectivity-server-cp3") {
			t.Errorf("%s: %+v", f.id, found)
		}
	}
	w := healthy(t)
	setFlag(w.threeServers(), "--authentication-audience=other")
	if text := only(w, "FL-KON-025").Findings[0].Message; !strings.Contains(text, "it demands other, unlike other servers; Pod kube-system/agent-a: ") || !strings.Contains(text, "and 1 more Pods") {
		t.Error(text)
	}
}

// TestAccountOfAnyServer proves that the account that the last of several servers demands is looked for.
func TestAccountOfAnyServer(t *testing.T) {
	w := healthy(t)
	setFlag(w.threeServers(), "--agent-service-account=other")
	found := only(w, "FL-KON-027").Findings
	if !slices.ContainsFunc(found, func(f rules.Finding) bool {
		return strings.HasSuffix(f.Object, "/other") && strings.Contains(f.Message, "konnectivity-server-cp3")
	}) {
		t.Errorf("got %+v", found)
	}
}
