// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// unavailable makes calls while a fault is caused, and logs how long the one waited that waited longest, for the table of make chaos.
// It returns the number of attempts that failed.
func unavailable(ctx context.Context, t *testing.T, what string, perSecond int, call, fault func(context.Context) error) int64 {
	t.Helper()
	var failed atomic.Int64
	load := harness.StartLoad(ctx, perSecond, harness.UntilItWorks(&failed, call))
	time.Sleep(time.Second) // the load before anything happens
	if err := fault(ctx); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Second) // the load after it
	dials := load.Stop()
	tunneltest.Unavailable(t, dials.Max)
	t.Logf("%s: %s; %d attempts failed", what, dials, failed.Load())
	if dials.Failed > 0 || dials.Made < perSecond {
		t.Errorf("want that %s succeeds at last: %s", what, dials)
	}
	return failed.Load()
}

// TestWrongClock: a node whose clock is an hour ahead is named by a check, and is reached as before.
func TestWrongClock(t *testing.T) {
	testutil.Full(t, "a fault of docs/chaos.md")
	const id = "FL-API-010"
	run(t, "clock of a node", 5*time.Minute, step{"a check names the node", func(ctx context.Context, t *testing.T) {
		var names []string
		failed := unavailable(ctx, t, "a dial", dialsPerSecond, dial, func(ctx context.Context) error {
			wrong, back, err := suite.WrongClock(ctx, time.Hour)
			if err != nil {
				return err
			}
			names = wrong
			found := harness.Wait(ctx, time.Minute, id+" to name "+strings.Join(wrong, ", "), func(ctx context.Context) error { return namedBy(ctx, t, id, wrong) })
			return errors.Join(found, back(ctx))
		})
		if failed > 0 {
			t.Errorf("%d dials failed", failed)
		}
		if err := harness.Wait(ctx, time.Minute, id+" to find nothing", func(ctx context.Context) error { return namedBy(ctx, t, id, nil) }); err != nil {
			t.Error(err)
		}
		for _, name := range names {
			if err := harness.Wait(ctx, time.Minute, "the kubelet of "+name, func(ctx context.Context) error { return suite.NodeHealthz(ctx, name) }); err != nil {
				t.Error(err)
			}
		}
	}})
}

// namedBy returns an error unless a check warns of just these nodes.
func namedBy(ctx context.Context, t *testing.T, id string, nodes []string) error {
	t.Helper()
	var want, got []string
	for _, n := range nodes {
		want = append(want, "Node "+n)
	}
	for _, c := range runCheck(ctx, t, 0, "--only", id).Checks {
		for _, f := range c.Findings {
			if c.ID == id {
				got = append(got, f.Object)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("it names %q, want %q", got, want)
	}
	return nil
}

// TestOtherCalls: while a webhook and an aggregated API cannot be reached, because no agent runs, kube-apiserver answers all other calls
// as fast as before, and says why calls to these two fail.
func TestOtherCalls(t *testing.T) {
	testutil.Full(t, "a fault of docs/chaos.md")
	run(t, "calls beside a webhook and an aggregated API that are down", 5*time.Minute, step{"they go on", func(ctx context.Context, t *testing.T) {
		registerWebhook(ctx, t)
		registerAPI(ctx, t)
		agents := suite.Agents()
		atEnd(ctx, t, func(ctx context.Context) {
			if err := agents.Start(ctx); err != nil {
				t.Errorf("starting the agents: %v", err)
			}
		})
		failed := unavailable(ctx, t, "another call", dialsPerSecond, otherCall, func(ctx context.Context) error {
			if err := agents.Stop(ctx); err != nil {
				return err
			}
			down := harness.Wait(ctx, time.Minute, "calls of webhook and aggregated API to fail", func(ctx context.Context) error {
				limited, cancel := context.WithTimeout(ctx, 40*time.Second) // the timeout of the webhook is 10 s, and kube-apiserver's for a dial 30 s
				defer cancel()
				return errors.Join(wantReason(reviewed(limited), "failed calling webhook"), wantReason(whoami(limited), "service unavailable", "unable to handle the request"))
			})
			time.Sleep(5 * time.Second) // the load meanwhile
			return errors.Join(down, agents.Start(ctx))
		})
		if failed > 0 {
			t.Errorf("%d other calls failed", failed)
		}
		if err := harness.Wait(ctx, time.Minute, "webhook and aggregated API to answer again", func(ctx context.Context) error {
			return errors.Join(reviewed(ctx), whoami(ctx))
		}); err != nil {
			t.Error(err)
		}
	}})
}

// otherCall writes and reads what concerns neither webhook nor aggregated API.
func otherCall(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "beside-"}}
	_, err := suite.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	_, err = suite.Client.CoreV1().Pods(harness.Namespace).List(ctx, metav1.ListOptions{})
	return err
}

// reviewed makes a call that the webhook of the test server reviews.
func reviewed(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-"}}
	_, err := suite.Client.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// whoami calls the aggregated API of the test server.
func whoami(ctx context.Context) error {
	return suite.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).Do(ctx).Error()
}

// wantReason returns an error unless err has one of the texts.
func wantReason(err error, texts ...string) error {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return nil
		}
	}
	return fmt.Errorf("got %v, want one of %q", err, texts) //nolint:errorlint // it may be nil
}
