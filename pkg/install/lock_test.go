// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// lockOf is the Lease of a run.
func lockOf(holder string) *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: LockName, Namespace: metav1.NamespaceSystem},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(usual.lockDuration / time.Second)), AcquireTime: &now, RenewTime: &now,
		},
	}
}

// TestLock checks that a run has the lock for as long as it runs, and that the lock is free after that.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		holder := func() string {
			lease, err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), LockName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return ptr.Deref(lease.Spec.HolderIdentity, "")
		}
		failure := errors.New("the run has failed")
		err := (&client{kube: kube, timing: usual}).locked(t.Context(), progress.Silent, func(ctx context.Context) error {
			first := holder()
			lease, err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, LockName, metav1.GetOptions{})
			if err != nil || ptr.Deref(lease.Spec.LeaseDurationSeconds, 0) != int32(usual.lockDuration/time.Second) {
				t.Errorf("others wait for another time than %v: %+v, %v", usual.lockDuration, lease, err)
			}
			time.Sleep(3 * usual.lockDuration)
			if now := holder(); first == "" || now != first || ctx.Err() != nil {
				t.Errorf("the lock was held by %q, then by %q: %v", first, now, ctx.Err())
			}
			return failure
		})
		if !errors.Is(err, failure) || holder() != "" {
			t.Errorf("error %v; %q holds the lock after the run", err, holder())
		}
	})
}

// TestLockOfKilledRun checks that the lock of a run that does not renew it is respected for its time and taken over after that, and
// that a run whose time limit comes first names the holder and changes nothing.
func TestLockOfKilledRun(t *testing.T) {
	for limit, wait := range map[time.Duration]bool{usual.lockDuration / 2: false, 2 * usual.lockDuration: true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errTimeout)
			defer cancel()
			began, ran := time.Now(), time.Duration(0)
			err := (&client{kube: fake.NewClientset(lockOf("killed")), timing: usual}).locked(ctx, progress.Silent, func(context.Context) error {
				ran = time.Since(began)
				return nil
			})
			var locked *LockedError
			switch {
			case wait && (err != nil || ran < usual.lockDuration || ran > usual.lockDuration+2*usual.lockRetry):
				t.Errorf("took the lock over after %v: %v", ran, err)
			case !wait && (!errors.As(err, &locked) || locked.Holder != "killed" || !errors.Is(err, errTimeout) || ran != 0):
				t.Errorf("limit %v: %v, ran after %v", limit, err, ran)
			}
		})
	}
}

// TestLockLost checks that a run ends when another one has its lock.
func TestLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, lost := fake.NewClientset(), atomic.Bool{}
		kube.PrependReactor("update", "leases", func(ktesting.Action) (bool, runtime.Object, error) { // the fake API server knows no conflicts
			return lost.Load(), nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, LockName, errors.New("it was changed"))
		})
		err := (&client{kube: kube, timing: usual}).locked(t.Context(), progress.Silent, func(ctx context.Context) error {
			if _, err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).Update(ctx, lockOf("another"), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			lost.Store(true)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(usual.lockDuration):
				return errors.New("the run goes on")
			}
		})
		if !errors.Is(err, ErrLockLost) {
			t.Errorf("error %v, want %v", err, ErrLockLost)
		}
	})
}

// TestConfirmed checks that a run which is not confirmed changes nothing.
func TestConfirmed(t *testing.T) {
	ran := 0
	run := func(context.Context) error { ran++; return nil }
	refused := errors.New("refused")
	if err := confirmed(func(context.Context) error { return refused }, run)(t.Context()); !errors.Is(err, refused) || ran != 0 {
		t.Errorf("%v, %d runs", err, ran)
	}
	for _, confirm := range []func(context.Context) error{nil, func(context.Context) error { return nil }} {
		ran = 0
		if err := confirmed(confirm, run)(t.Context()); err != nil || ran != 1 {
			t.Errorf("%v, %d runs", err, ran)
		}
	}
}
