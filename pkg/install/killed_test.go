// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// errKilled ends a run as if its process had been killed: no request leaves any more.
var errKilled = errors.New("killed")

// dying lets n writes through. Before the next one, it calls kill.
type dying struct {
	next http.RoundTripper
	left atomic.Int64
	kill func()
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "selfsubject")
	if left := d.left.Load(); left > 0 && !writes || writes && d.left.Add(-1) >= 0 {
		return d.next.RoundTrip(r)
	}
	d.kill()
	return nil, errKilled
}

// testKilled cuts an upgrade off before its writes number first, first+step and so on, and wants the next run to complete it.
// What the API server has after a write that arrived is what it has before the next write.
func testKilled(e env, first, step int64) {
	testutil.Limit(e.t, 10*time.Minute) // some 25 upgrades
	old, now := objects(e.t, oldBundle), objects(e.t, nil)
	for n := first; ; n += step {
		e.apply(old, install.Options{})
		ctx, kill := context.WithCancel(e.t.Context())
		d := &dying{kill: kill}
		d.left.Store(n - 1)
		cfg := rest.CopyConfig(e.cfg)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { d.next = next; return d })
		_, err := install.Apply(ctx, cfg, now, install.Options{}.Quick())
		kill()
		e.breakLock()
		e.apply(now, install.Options{})
		e.wantExactly(now)
		if err == nil {
			e.t.Logf("a whole run makes less than %d writes", n)
			break
		}
		if n > 200 {
			e.t.Fatalf("still fails: %v", err)
		}
	}
}

// breakLock spares tests the time for which a killed run holds it.
func (e env) breakLock() {
	if err := e.client.CoordinationV1().Leases("kube-system").Delete(e.t.Context(), install.LockName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
}

// testConcurrent lets two bundles be installed at once, several times: one after
// the other wins, and nothing of the loser is left.
func testConcurrent(e env) {
	old, now := objects(e.t, oldBundle), objects(e.t, nil)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if _, err := install.Apply(e.t.Context(), e.cfg, [][]component.Object{old, now}[i%2], install.Options{}.Quick()); err != nil {
				e.t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := e.names(); !cmp.Equal(got, wantNames(old)) && !cmp.Equal(got, wantNames(now)) {
		e.t.Errorf("a mixture of both: %v", got)
	}
}

// testStaleLock: the lock of a run that was killed is respected for its time, and taken over after that.
func testStaleLock(e env) {
	leases := e.client.CoordinationV1().Leases("kube-system")
	lease := newLease(install.LockName, "killed", metav1.NowMicro())
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
	lease, err := leases.Create(e.t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	run := func(o install.Options) error {
		_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), o)
		return err
	}
	err = e.limited(`"killed" holds`, func(limit time.Duration) error { return run(install.Options{Timeout: limit}.Quick()) })
	var locked *install.LockedError
	if !errors.As(err, &locked) || locked.Holder != "killed" {
		e.t.Errorf("error %v", err)
	}
	const lock = 2 * time.Second
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To(int32(lock/time.Second)), ptr.To(metav1.NowMicro())
	if _, err := leases.Update(e.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	begin := time.Now() // a run takes the lock that long after it has seen it
	if err := run(install.Options{}.Quick()); err != nil {
		e.t.Error(err)
	}
	if took := time.Since(begin); took < lock {
		e.t.Errorf("took the lock after %v, want %v at least", took, lock)
	}
}
