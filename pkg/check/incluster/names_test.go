// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// TestNamesOfTheDefaultBundle proves that without -f the names are those of the Kubernetes documentation and,
// for the label of konnectivity-server, k8s-app: konnectivity-server.
func TestNamesOfTheDefaultBundle(t *testing.T) {
	want := Names{
		SchedulerName: "my-scheduler", Lease: types.NamespacedName{Namespace: "kube-system", Name: "my-scheduler"},
		Namespace: "kube-system", Scheduler: "my-scheduler", SchedulerPods: "app.kubernetes.io/name=my-scheduler,component=scheduler,tier=control-plane",
		Agents: "konnectivity-agent", ServerPods: "k8s-app=konnectivity-server", ServerPort: "8134", ServerOnLoopback: true, SwitchedOff: map[string]string{},
	}
	if diff := cmp.Diff(want, names()); diff != "" {
		t.Error(diff)
	}
}

func TestNamesOfAnotherBundle(t *testing.T) {
	b, err := bundle.Load([]byte(bundletest.File(`
namespace: ours
scheduler:
  enabled: false
  name: second
  profiles: [{schedulerName: batch}]
  leaderElection: {leaseName: turn, leaseNamespace: leases}
konnectivity:
  enabled: false
  server: {healthPort: 9134}
`)))
	if err != nil {
		t.Fatal(err)
	}
	env, err := NewEnv(&rest.Config{Host: "http://127.0.0.1:1"}, b, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	got := NamesOf(b)
	if got.Namespace != "ours" || got.Scheduler != "second" || got.ServerPort != "9134" {
		t.Errorf("got %+v", got)
	}
	if env.SchedulerName != "batch" || env.Lease != (types.NamespacedName{Namespace: "leases", Name: "turn"}) || env.SwitchedOff["scheduler"] == "" || env.SwitchedOff["tunnel"] == "" {
		t.Errorf("got %+v", env)
	}
	if env.HostIP != "192.0.2.1" || env.Parts == check.Parts(nil) || env.Leftovers == nil {
		t.Errorf("got %+v", env)
	}
}
