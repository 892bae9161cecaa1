// SPDX-License-Identifier: Apache-2.0

// Package suite_test holds the end-to-end tests that are the same for every
// provider: what a cluster's user does, through the tunnel. They share one
// cluster. With PROVIDER=kind, a firewall in its nodes lets nothing but the
// tunnel through (kind_firewall_test.go), and a few tests more need real nodes.
//
// In `make test`, the cluster is an embedded one that also has the operator, and
// the tests are those that show the main path. They need no program of the
// machine but bash: the other tests call testutil.Full.
package suite_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// suite is the cluster of all tests of this package, serverCA what its test
// server's certificate is of, and firewall what stands in the way of everything
// but the tunnel where nodes are real.
var (
	suite    = harness.New(options(), prepare)
	serverCA []byte
	firewall *harness.Firewall
)

func options() harness.Options {
	o := harness.Options{Name: harness.ClusterName("suite"), Workers: 2, Bundle: "gateway: {enabled: true}\ntunnelAPI: {enabled: true, connect: true}"}
	if testutil.Main() { // `make test` has this one cluster, also for the operator: that applies a bundle with its defaults, and never the tunnel's API
		o.Bundle, o.Operator, o.Verify = "", true, true
	}
	return o
}

func TestMain(m *testing.M) {
	if testutil.Main() && os.Getenv("PROVIDER") == harness.Kind {
		fmt.Fprintf(os.Stderr, "%s=%s: these tests run on an embedded cluster\n", testutil.LayerVariable, testutil.MainLayer)
		os.Exit(2)
	}
	suite.BeforeEveryTest(countDropped)
	os.Exit(suite.Main(m))
}

func prepare(ctx context.Context, c *harness.Cluster) (err error) {
	if testutil.Main() { // many tests use it, and from empty caches it takes longer than a test may
		if _, err := c.BuildKubectl(ctx); err != nil {
			return err
		}
	}
	if serverCA, err = c.StartServer(ctx); err != nil || c.Simulated() {
		return err
	}
	firewall, err = c.RaiseFirewall(ctx)
	return err
}

// atEnd cleans up after a test, also when its own time is over.
func atEnd(ctx context.Context, t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx = context.WithoutCancel(ctx)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		do(ctx)
	})
}

// client is a command that fetches a page of which the URL follows, and fails if the status is an error. It is curl, but in `make test`, which needs
// no program of the machine.
func client(t *testing.T) []string {
	t.Helper()
	if testutil.Main() {
		return suite.Tool("fetch")
	}
	return []string{daemontest.Program(t, "curl"), "-sS", "--fail", "--max-time", "20"}
}

// lenientClient is a client that accepts any certificate and any status.
func lenientClient(t *testing.T) []string {
	t.Helper()
	if testutil.Main() {
		return suite.Tool("fetch", "-lenient")
	}
	return []string{daemontest.Program(t, "curl"), "-sSk", "--max-time", "20"}
}

// step is one thing that must hold.
type step struct {
	name string
	do   func(ctx context.Context, t *testing.T)
}

// run makes the steps of a feature, each within a time limit.
func run(t *testing.T, feature string, limit time.Duration, steps ...step) {
	if !testutil.Main() { // there, each is done in much less than the usual limit
		testutil.Limit(t, limit)
	}
	f := features.New(feature)
	for _, s := range steps {
		f.Assess(s.name, func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			s.do(limited, t)
			return ctx
		})
	}
	suite.Test(t, f.Feature())
}
