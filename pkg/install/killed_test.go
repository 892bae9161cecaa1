// SPDX-License-Identifier: Apache-2.0

package install_test

import (
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

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// errKilled ends a run as if its process had been killed: no request leaves any more.
var errKilled = errors.New("killed")

// dying lets n writes through; the last one may or may not reach the API server.
type dying struct {
	next    http.RoundTripper
	left    atomic.Int64
	arrives bool
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "selfsubject")
	if !writes {
		if d.left.Load() <= 0 {
			return nil, errKilled
		}
		return d.next.RoundTrip(r)
	}
	switch left := d.left.Add(-1); {
	case left > 0:
		return d.next.RoundTrip(r)
	case left == 0 && d.arrives:
		if resp, err := d.next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil, errKilled
}

// testKilled cuts an upgrade off at each of its writes, before and after it
// reached the API server, and wants the next run to complete it.
func testKilled(e env) {
	old, now := objects(e.t, oldBundle), objects(e.t, nil)
	for _, arrives := range []bool{true, false} {
		for n := int64(1); ; n++ {
			e.clean()
			e.apply(old, install.Options{})
			d := &dying{arrives: arrives}
			d.left.Store(n)
			cfg := rest.CopyConfig(e.cfg)
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { d.next = next; return d })
			_, err := install.Apply(e.t.Context(), cfg, now, install.Options{Timeout: 15 * time.Second})
			e.breakLock()
			e.apply(now, install.Options{})
			e.wantExactly(now)
			if err == nil {
				e.t.Logf("a whole run makes %d writes", n-1)
				break
			}
			if n > 200 {
				e.t.Fatalf("still fails: %v", err)
			}
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
			if _, err := install.Apply(e.t.Context(), e.cfg, [][]component.Object{old, now}[i%2], install.Options{}); err != nil {
				e.t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := e.names(); !cmp.Equal(got, wantNames(old)) && !cmp.Equal(got, wantNames(now)) {
		e.t.Errorf("a mixture of both: %v", got)
	}
}

func testStaleLock(e env) {
	now := metav1.NewMicroTime(time.Now())
	lease := newLease(install.LockName, "killed", now)
	if _, err := e.client.CoordinationV1().Leases("kube-system").Create(e.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{Timeout: 5 * time.Second}) // less than the lock's time
	var locked *install.LockedError
	if !errors.As(err, &locked) || locked.Holder != "killed" || !strings.Contains(err.Error(), `"killed" holds`) {
		e.t.Errorf("error %v", err)
	}
	begin := time.Now()
	e.apply(objects(e.t, nil), install.Options{})
	e.t.Logf("took the lock after %v", time.Since(begin))
}
