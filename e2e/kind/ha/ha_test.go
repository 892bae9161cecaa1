// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// Every API server reaches every node, including control plane nodes, through
// the Konnectivity server on its own node. It has no other way.
// It observes KON-30 and KON-75 of docs/requirements.md.
func TestEveryServerReachesEveryNode(t *testing.T) {
	check(t, "all pairs", 3*time.Minute, func(ctx context.Context, t *testing.T) {
		if err := firewall.Tight(); err != nil {
			t.Error(err)
		}
		if len(servers) != 3 || len(suite.Nodes.All()) != 5 {
			t.Fatalf("%d API servers, %d nodes", len(servers), len(suite.Nodes.All()))
		}
		for _, s := range servers {
			for _, node := range suite.Nodes.All() {
				if err := s.reaches(ctx, node); err != nil {
					t.Errorf("from %s to %s: %v", s.node, node, err)
				}
			}
		}
	})
}

// dial makes a new connection to the test server, through one API server.
func (s apiServer) dial(ctx context.Context) error {
	body, err := s.ServiceGet(ctx, "echo", map[string]string{"msg": "dial"})
	if err == nil && string(body) != "dial" {
		err = fmt.Errorf("%q came back", body)
	}
	return err
}

const dialsPerSecond, listsPerSecond = 20, 5

// All checks of fairlead verify pass through the load balancer, where the
// counters come from several API servers and Konnectivity servers.
func TestVerify(t *testing.T) {
	check(t, "all checks pass", 6*time.Minute, func(ctx context.Context, t *testing.T) {
		r, err := suite.Try(ctx, "verify", "--context", suite.Context(), "--disruptive")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s%s", r.Stdout, r.Stderr)
		if r.Code != 0 {
			t.Errorf("exit code %d", r.Code)
		}
	})
}

// A killed server interrupts the traffic of its own API server and of no other,
// and comes back by itself.
// It observes KON-77 and KON-85 of docs/requirements.md.
func TestServerKilled(t *testing.T) {
	check(t, "killed and back", 5*time.Minute, func(ctx context.Context, t *testing.T) {
		victim, others := servers[1], []apiServer{servers[0], servers[2]}
		loads := startLoads(ctx, others)
		var lists []*harness.Load
		var refused atomic.Int64
		for _, s := range others {
			lists = append(lists, harness.StartLoad(ctx, listsPerSecond, harness.UntilItWorks(&refused, s.list)))
		}
		killed := time.Now()
		victim.wantCutOff(ctx, t)
		if err := harness.Wait(ctx, 2*time.Minute, "the killed server to be back", victim.dial); err != nil {
			t.Error(err)
		}
		t.Logf("its API server reaches nodes again after %s", time.Since(killed).Round(100*time.Millisecond))
		wantNoneFailed(t, others, loads)
		// The tunnel's API answers through the other servers. The API servers share its APIService's condition Available: the one that was cut off
		// may set it to false, and then all of them answer 503 until another one has checked.
		t.Logf("%d lists of agents were refused and tried again", refused.Load())
		for i, load := range lists {
			if l := load.Stop(); l.Failed > 0 || l.Made < listsPerSecond || l.Max > 10*time.Second {
				t.Errorf("lists of agents through %s: %s", others[i].node, l)
			}
		}
		if err := errors.Join(waitForCount(ctx, suite.Client, 3), waitForAgents(ctx, suite.Client)); err != nil {
			t.Error(err)
		}
		for _, node := range suite.Nodes.All() {
			if err := victim.reaches(ctx, node); err != nil {
				t.Errorf("from %s to %s: %v", victim.node, node, err)
			}
		}
	})
}

// killLoop kills the server, and for some seconds every one that the kubelet
// starts in its place.
const killLoop = `end=$(($(date +%s) + 8)); while [ "$(date +%s)" -lt $end ]; do pkill -KILL -f '^/proxy-server'; sleep 0.05; done; true`

// downFor is how long a dial has to fail that the kill loop outlasts.
const downFor = 5 * time.Second

// wantCutOff kills the Konnectivity server of an API server, which then reaches
// no node but still answers. A dial that did not use that server would succeed
// within milliseconds.
func (s apiServer) wantCutOff(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := harness.Run(ctx, s.node, "pkill", "-KILL", "-f", "^/proxy-server"); err != nil {
		t.Fatal(err)
	}
	looped := make(chan error, 1)
	go func() {
		_, err := harness.Run(ctx, s.node, "sh", "-c", killLoop)
		looped <- err
	}()
	dialCtx, cancel := context.WithTimeout(ctx, downFor)
	defer cancel()
	err := s.dial(dialCtx)
	t.Logf("a dial through the API server of the killed one: %v", err)
	if err == nil {
		t.Error("a dial succeeded though the API server has no Konnectivity server: it went another way")
	}
	if _, err := s.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{}); err != nil {
		t.Errorf("the API server itself does not answer: %v", err)
	}
	if err := <-looped; err != nil {
		t.Error(err)
	}
}

// startLoads dials all the time through each of the API servers.
func startLoads(ctx context.Context, through []apiServer) []*harness.Load {
	var loads []*harness.Load
	for _, s := range through {
		loads = append(loads, harness.StartLoad(ctx, dialsPerSecond, s.dial))
	}
	return loads
}

// wantNoneFailed stops the loads and checks that none of their dials failed.
func wantNoneFailed(t *testing.T, through []apiServer, loads []*harness.Load) {
	t.Helper()
	for i, load := range loads {
		dials := load.Stop()
		t.Logf("meanwhile through %s: %s", through[i].node, dials)
		if dials.Failed > 0 || dials.Made < dialsPerSecond {
			t.Errorf("want that no dial of the other API servers fails: %s", dials)
		}
	}
}

// A control plane is removed: the Lease of its server expires, agents
// disconnect from it, and the other control planes continue.
func TestControlPlaneRemoved(t *testing.T) {
	t.Parallel() // after all others, which are not parallel, in any order: the cluster has two control planes afterwards
	check(t, "removed and forgotten", 5*time.Minute, func(ctx context.Context, t *testing.T) {
		gone, rest := servers[2], servers[:2]
		loads := startLoads(ctx, rest)
		begin := time.Now()
		// Removes the etcd member and stops everything that kubeadm started.
		if out, err := harness.Run(ctx, gone.node, "kubeadm", "reset", "--force"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := suite.Client.CoreV1().Nodes().Delete(ctx, gone.node.String(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		if err := waitForCount(ctx, suite.Client, 2); err != nil {
			t.Error(err)
		}
		t.Logf("servers and agents count two after %s", time.Since(begin).Round(100*time.Millisecond))
		wantNoneFailed(t, rest, loads)
		if err := gone.dial(ctx); err == nil {
			t.Error(errors.New("the removed API server still answers"))
		}
		for _, s := range rest {
			for _, node := range append(suite.Nodes.Workers, suite.Nodes.ControlPlanes[:2]...) {
				if err := s.reaches(ctx, node); err != nil {
					t.Errorf("from %s to %s: %v", s.node, node, err)
				}
			}
		}
	})
}
