// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestLostLease: a replica that loses the leader's Lease ends, as it must, but first it is not ready any more and goes
// on converting for as long as when it is stopped: API servers may still call it.
// It observes VER-68 of docs/requirements.md.
func TestLostLease(t *testing.T) {
	testutil.Full(t, "waits for the end of a Lease")
	daemontest.Beside(t)
	e := start(t)
	ports := daemontest.Ports(t, 2)
	const drain = 8 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	o := operator.Options{
		Namespace: "kube-system", WebhookAddress: "127.0.0.1:" + ports[0], WebhookURL: "https://127.0.0.1:" + ports[0] + "/convert",
		WebhookNames: []string{"127.0.0.1"}, MetricsAddress: "0", HealthAddress: "127.0.0.1:" + ports[1], Drain: drain, LeaderElect: true,
	}
	o.Quick(e.metrics)
	go func() { done <- operator.Run(ctx, e.cfg, o) }()
	ready := func(want int) {
		t.Helper()
		testutil.Eventually(t, bound, func() error {
			if status, text := get(t, nil, "http://127.0.0.1:"+ports[1]+"/readyz", ""); status != want {
				return fmt.Errorf("/readyz: %d, want %d: %s", status, want, text)
			}
			return nil
		})
	}
	ready(http.StatusOK)
	testutil.Eventually(t, bound, func() error {
		_, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{"managementPolicy": "Observe"}), metav1.CreateOptions{})
		return err
	})
	e.reconciled("Drift") // so this replica leads
	patch := fmt.Appendf(nil, `{"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": %q}}`, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
	if _, err := e.client.CoordinationV1().Leases("kube-system").Patch(t.Context(), operatorbundle.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ready(http.StatusInternalServerError)
	began := time.Now()
	for time.Since(began) < time.Second { // it drains longer than that, also if the probe was late
		if _, err := e.old.Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatalf("%v after the replica has lost the Lease: %v", time.Since(began), err)
		}
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("the replica ended without an error, so nothing says why")
		}
	case <-time.After(bound):
		t.Error("a replica that does not lead any more goes on")
	}
}
