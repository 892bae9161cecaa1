// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// servers makes a world of so many servers with these flags, without the bundle's count.
func (w *world) servers(n int, flags ...string) {
	w.t.Helper()
	first := w.find(check.RoleServer)
	var args []string
	for _, a := range first.Args {
		if !strings.HasPrefix(a, "--server-count") {
			args = append(args, a)
		}
	}
	first.Args = append(args, flags...)
	for i := 1; i < n; i++ {
		p := *first
		p.Name = fmt.Sprintf("%s-%d", first.Name, i)
		w.Programs.Value = append(w.Programs.Value, p)
		w.ServerMetrics[p.Name], w.Shown[p.Name] = w.ServerMetrics[first.Name], w.Shown[first.Name]
	}
}

// serverLease is a Lease of a server.
func (w *world) serverLease(namespace, name string, labels map[string]string, age time.Duration) {
	l := lease(namespace, name, name, now.Add(-age))
	l.Labels = labels
	w.Leases.Value = append(w.Leases.Value, l)
}

// TestServerCount proves that servers without a number tell agents of one server, that this is a fault with more of them, and that it is none for
// agents that count Leases or look on.
func TestServerCount(t *testing.T) {
	for name, tc := range map[string]struct {
		n       int
		servers []string
		agents  string
		want    rules.Status
	}{
		"one, no number":                     {1, nil, "", rules.OK},
		"three, no number":                   {3, nil, "", rules.Failed},
		"three, agents look on":              {3, nil, "--sync-forever", rules.OK},
		"three, agents count Leases":         {3, nil, "--count-server-leases", rules.Skipped},
		"three, Leases that no agent counts": {3, []string{"--enable-lease-controller"}, "", rules.Failed},
		"three, told of three":               {3, []string{"--server-count=3"}, "", rules.OK},
		"three, told of two, look on":        {3, []string{"--server-count=2"}, "--sync-forever=true", rules.Warning},
		"three, told of five, look on":       {3, []string{"--server-count=5"}, "--sync-forever=true", rules.Failed},
	} {
		w := healthy(t)
		w.servers(tc.n, tc.servers...)
		if tc.agents != "" {
			w.all(check.RoleAgent, func(p *observe.Program) { setFlag(p, tc.agents) })
		}
		if r := only(w, "FL-KON-007"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestLeasesOfOddClocks proves that Leases are judged by when the API server stored them, and that the check reports a wrong clock of a server.
func TestLeasesOfOddClocks(t *testing.T) {
	for name, tc := range map[string]struct {
		age, stored time.Duration
		want        rules.Status
	}{
		"right":                 {time.Second, time.Second, rules.OK},
		"two minutes behind":    {2 * time.Minute, time.Second, rules.Warning},
		"an hour ahead":         {-time.Hour, time.Second, rules.Warning},
		"an hour ahead, dead":   {-time.Hour, time.Minute, rules.Failed},
		"dead":                  {time.Minute, time.Minute, rules.Failed},
		"a little behind":       {5 * time.Second, time.Second, rules.OK},
		"live, read late a bit": {20 * time.Second, 20 * time.Second, rules.OK},
	} {
		w := healthy(t)
		w.servers(1, "--enable-lease-controller")
		w.serverLease("kube-system", "1", map[string]string{"k8s-app": "konnectivity-server"}, tc.age)
		w.Leases.Value[len(w.Leases.Value)-1].ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: now.Add(-tc.stored)}}, {}}
		r := only(w, "FL-KON-008")
		if r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
		if tc.want == rules.Warning && r.Findings[0].Object != "Lease kube-system/1" {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// TestLeasesByFlags proves that servers' Leases are looked for where the servers' flags say, and nowhere else.
func TestLeasesByFlags(t *testing.T) {
	own := map[string]string{"tunnel": "east"}
	usual := map[string]string{"k8s-app": "konnectivity-server"}
	flags := []string{"--enable-lease-controller", "--lease-namespace=tunnels", "--lease-label=tunnel=east"}
	for name, tc := range map[string]struct {
		flags []string
		do    func(w *world)
		want  rules.Status
	}{
		"where flags say": {flags, func(w *world) {
			w.serverLease("tunnels", "1", own, time.Second)
			w.serverLease("tunnels", "2", own, time.Second)
		}, rules.OK},
		"one is old": {flags, func(w *world) {
			w.serverLease("tunnels", "1", own, time.Second)
			w.serverLease("tunnels", "2", own, time.Minute)
		}, rules.Failed},
		"another label": {flags, func(w *world) {
			w.serverLease("tunnels", "1", own, time.Second)
			w.serverLease("tunnels", "2", usual, time.Second)
		}, rules.Failed},
		"another namespace": {flags, func(w *world) {
			w.serverLease("tunnels", "1", own, time.Second)
			w.serverLease("kube-system", "2", own, time.Second)
		}, rules.Failed},
		"defaults": {flags[:1], func(w *world) {
			w.serverLease("kube-system", "1", usual, time.Second)
			w.serverLease("kube-system", "2", usual, time.Second)
			w.serverLease("fairlead-konnectivity", "left", usual, time.Second)
		}, rules.OK},
	} {
		w := healthy(t)
		w.servers(2, tc.flags...)
		tc.do(w)
		r := only(w, "FL-KON-008")
		if r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
		if len(r.Findings) > 0 && r.Findings[0].Fix != "kubectl -n tunnels get leases -l tunnel=east" {
			t.Errorf("%s: fix %s", name, r.Findings[0].Fix)
		}
	}
}
