// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSwitchedOff proves that a component, or a single check, can be left out with its reason, and nothing else with it: a check's ID does not
// say which component it belongs to.
func TestSwitchedOff(t *testing.T) {
	env := newStubAPI(t).env(t)
	env.SwitchedOff = map[string]string{"tunnel-webhook": "no network", "scheduler": "no scheduler"}
	report, err := Run(t.Context(), env, Options{Checks: []Check{
		checkOf("tunnel-logs", passes), checkOf("tunnel-webhook", passes), of(ComponentScheduler, checkOf("scheduler-lease", passes)),
		of(ComponentScheduler, checkOf("own-check", passes)), checkOf("scheduler-of-others", passes),
	}}, &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range report.Checks {
		got[r.ID] = string(r.Status) + " " + r.Error
	}
	want := map[string]string{
		"tunnel-logs": "ok ", "tunnel-webhook": "skipped no network",
		"scheduler-lease": "skipped no scheduler", "own-check": "skipped no scheduler", "scheduler-of-others": "ok ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func of(component Component, c Check) Check {
	c.Component = component
	return c
}

// TestComponents proves that the checks of this package name the component that their IDs begin with.
func TestComponents(t *testing.T) {
	for _, c := range All() {
		prefix, _, _ := strings.Cut(c.ID, "-")
		want := Component(prefix)
		if want != ComponentScheduler && want != ComponentTunnel && want != ComponentGateway {
			want = ""
		}
		if c.Component != want {
			t.Errorf("%s has component %q, want %q", c.ID, c.Component, want)
		}
	}
}

// TestAddressFault proves that a run first reports a missing address, and fails because of it.
func TestAddressFault(t *testing.T) {
	env := newStubAPI(t).env(t)
	env.AddressFault = WithHint(errors.New("the address is gone"), "run up")
	report, err := Run(t.Context(), env, Options{Checks: []Check{checkOf("a", passes)}}, &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Checks) != 2 || report.Success() {
		t.Fatalf("%+v", report)
	}
	if r := report.Checks[0]; r.Status != Failed || r.Error != "the address is gone" || r.Hint != "run up" {
		t.Errorf("%+v", r)
	}
}

// TestCallsWithoutAgentsAreThoseOfTheCluster proves that the calls that are made with all agents stopped leave out what
// cannot work in the cluster, together with the server that only they need: the stub would refuse to make that.
func TestCallsWithoutAgentsAreThoseOfTheCluster(t *testing.T) {
	env := newStubAPI(t).env(t)
	env.HostIP = "" // a server of the check's own is impossible
	env.SwitchedOff = map[string]string{"tunnel-node-proxy": "off", "tunnel-service-proxy": "off", "tunnel-webhook": "off"}
	var names []string
	res := runOne(t.Context(), env, checkOf("x", func(ctx context.Context, s *Scope) error {
		calls, err := s.tunnelCalls(ctx)
		for _, c := range calls {
			names = append(names, c.name)
		}
		return err
	}), Options{}.withDefaults(), shared{})
	wantResult(t, res, "")
	if diff := cmp.Diff([]string{"logs", "exec", "port-forward"}, names); diff != "" {
		t.Error(diff)
	}
}
