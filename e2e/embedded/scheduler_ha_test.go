// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

const (
	// gapGoal is how long pods may wait for a scheduler after any fault.
	gapGoal = 17 * time.Second
	// gapLimit is when the test fails: what it measures includes requests and programs of its own, on a busy machine.
	gapLimit = gapGoal + 10*time.Second
)

// TestSchedulerSurvives measures how long pods wait after each fault, and that no pod is bound twice.
// It observes SCHED-36 and SCHED-38 of docs/requirements.md.
func TestSchedulerSurvives(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	file := filepath.Join(h.Dir, "bundle.yaml")
	bundle := bundletest.File("scheduler: {builtInProfiles: {spread: {}}}")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must("up", "-f", file, "-q")
	c := &ha{home: h, t: t, client: h.client("dev")}
	c.bind("before")

	t.Run("leader killed", func(t *testing.T) {
		c.fault(t, "the leader is killed (`SIGKILL`)", func(leader string) { c.kill(leader) })
	})
	t.Run("leader paused past its lease", func(t *testing.T) {
		pid, old := 0, ""
		c.fault(t, "the leader is stopped (`SIGSTOP`) for longer than its Lease", func(leader string) {
			pid, old = h.status("dev").find(t, leader).PID, leader
			c.signal(pid, syscall.SIGSTOP)
		})
		c.signal(pid, syscall.SIGCONT)
		waitFor(t, "the replica that was resumed to exit", func() bool { return h.status("dev").find(t, old).PID != pid })
		c.bind("after the pause")
	})
	t.Run("API server restarted", func(t *testing.T) {
		c.fault(t, "the API server is killed and started", func(string) { c.kill("kube-apiserver") })
	})
	t.Run("etcd restarted", func(t *testing.T) {
		c.fault(t, "etcd is killed and started", func(string) { c.kill("etcd") })
	})
	t.Run("right to the Lease taken away", c.withoutRight)
	bound := c.nothingTwice()
	fmt.Print(gapTable(c.gaps, bound))
	h.must("down", "-q")
	h.nothingLeft("dev")
}

// fault waits for a leader and a ready standby, injects the fault, and measures the time until a pod that is created
// after it is bound.
func (c *ha) fault(t *testing.T, what string, do func(leader string)) {
	t.Helper()
	leader, standby := c.roles(t)
	if code, body := c.get(standby, "/readyz"); code != http.StatusOK {
		t.Errorf("the standby is not ready: %d %s", code, body)
	}
	if _, page := c.get(leader, "/metrics/resources"); !strings.Contains(page, "kube_pod_resource_request{") {
		t.Errorf("the leader serves no metrics of resources: %q", page)
	}
	if code, page := c.get(standby, "/metrics/resources"); page != "" {
		t.Errorf("the standby serves metrics of resources, too: %d %q", code, page)
	}
	stop := c.traffic()
	defer stop()
	begin := time.Now()
	do(leader)
	c.bind("fault")
	c.waited(t, what, begin)
}

// withoutRight removes the Role for the Lease: the probes of kube-scheduler do not report that, but the check of
// fairlead verify does.
func (c *ha) withoutRight(t *testing.T) {
	const role = "my-scheduler-leader-election"
	roles := c.client.RbacV1().Roles("kube-system")
	kept, err := roles.Get(t.Context(), role, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.roles(t)
	if err := roles.Delete(t.Context(), role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	nobodyLeads := func() bool {
		r := c.try("verify", "--only", "scheduler-lease")
		return r.Code != 0 && strings.Contains(r.Stdout, "has no holder")
	}
	waitFor(t, "the check to report that no replica leads", nobodyLeads)
	for _, name := range []string{"second-scheduler-0", "second-scheduler-1"} {
		for _, probe := range []string{"/healthz", "/livez", "/readyz"} {
			waitFor(t, name+" to answer "+probe+" with 200 without a right to its Lease", func() bool {
				code, _ := c.get(name, probe)
				return code == http.StatusOK
			})
		}
	}
	if !nobodyLeads() {
		t.Error("while the probes of both replicas answer 200, the check does not say that the Lease has no holder")
	}
	kept.ResourceVersion, kept.UID = "", ""
	begin := time.Now()
	if _, err := roles.Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bind("right given back")
	c.waited(t, "the right to the Lease is taken from both, and given back", begin)
}

// gap is how long pods waited after a fault.
type gap struct {
	fault  string
	waited time.Duration
}

// waited records the gap since a fault.
func (c *ha) waited(t *testing.T, fault string, since time.Time) {
	t.Helper()
	g := gap{fault, time.Since(since)}
	c.gaps = append(c.gaps, g)
	t.Logf("unavailable for at most %v: Pods waited for a leader", g.waited.Round(time.Millisecond)) // for the table of make chaos
	if g.waited > gapLimit {
		t.Errorf("pods waited %s, want at most %s", g.waited, gapLimit)
	}
}

// gapTable is what docs/scheduler-failover.md shows.
func gapTable(gaps []gap, bound int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| fault | Pods waited, at most %.0f s |\n|---|---:|\n", gapGoal.Seconds())
	for _, g := range gaps {
		fmt.Fprintf(&b, "| %s | %.1f s |\n", g.fault, g.waited.Seconds())
	}
	fmt.Fprintf(&b, "\n%d Pods were bound, none twice.\n\n", bound)
	return b.String()
}
