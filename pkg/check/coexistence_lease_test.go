// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// inTurn returns one holder after another, and then always the last one. "" does not renew the Lease.
func inTurn(holders ...string) func() string {
	var n atomic.Int64
	return func() string { return holders[min(n.Add(1), int64(len(holders)))-1] }
}

// TestLeaseOfAStranger: a holder that is not one of our replicas and renews our Lease is another scheduler. A holder
// that does not renew it is a former leader of ours that has died and whose pod is gone.
func TestLeaseOfAStranger(t *testing.T) {
	for name, tc := range map[string]struct {
		holder       func() string
		want, detail string
	}{
		"a stranger renews":               {holder: always("stranger_1"), want: "held by stranger_1, which is not a replica"},
		"our leader":                      {holder: always("ours_1")},
		"our leader has died":             {holder: inTurn("gone_1", ""), detail: "gone_1 is not a replica and does not renew"},
		"a standby takes over":            {holder: inTurn("gone_1", "", "ours_2")},
		"a stranger takes over":           {holder: inTurn("gone_1", "", "stranger_2"), want: "held by stranger_2"},
		"a replica that is being stopped": {holder: always("former_1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			lead(t, api, secondLease, tc.holder)
			env := api.env(t)
			env.OwnsIdentity = func(_ context.Context, holder string) (bool, error) { return strings.HasPrefix(holder, "ours_"), nil }
			env.FormerIdentity = func(_ context.Context, holder string, _ time.Time) (bool, error) {
				return strings.HasPrefix(holder, "former_"), nil
			}
			s := newScope(env, "x")
			err := s.leaseHolderIsOurs(t.Context())
			if (tc.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tc.want) || HintOf(err) == "") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if !strings.Contains(s.details["lease-holder"], tc.detail) {
				t.Errorf("details %v, want %q", s.details, tc.detail)
			}
		})
	}
}

// TestLeaseIsNotWatchedForEver: if the check times out before the Lease expires, the check proves neither.
func TestLeaseIsNotWatchedForEver(t *testing.T) {
	api := newStubAPI(t)
	api.put(secondLease, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("gone_1"), LeaseDurationSeconds: ptr.To[int32](60)},
	})
	env := api.env(t)
	env.OwnsIdentity = func(context.Context, string) (bool, error) { return false, nil }
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := newScope(env, "x").leaseHolderIsOurs(ctx); err == nil || !strings.Contains(err.Error(), "whether it renews the Lease is unknown") {
		t.Errorf("got %v", err)
	}
}

// TestDetailsSayWhatWasNotLookedAt: the details of a check that passes name what it has not proved.
func TestDetailsSayWhatWasNotLookedAt(t *testing.T) {
	b := v1alpha1.New()
	b.Scheduler.Partition = &v1alpha1.Partition{NodeLabels: map[string]string{"pool": "batch"}}
	for name, tc := range map[string]struct {
		env  Env
		want map[string]string
	}{
		"no replicas known": {Env{Coexistence: CoexistenceOf(v1alpha1.New())}, map[string]string{"lease-holder": "not checked", "bindings": "not checked"}},
		"no configuration":  {Env{}, map[string]string{"other-configurations": "not checked"}},
		"hosts alike":       {Env{OwnsIdentity: func(context.Context, string) (bool, error) { return true, nil }, IdentityLimit: "hosts are alike"}, map[string]string{"bindings": "hosts are alike"}},
		"no taint":          {Env{Coexistence: CoexistenceOf(b)}, map[string]string{"partition": "1 of 1 nodes", "partition-taint": "other schedulers still place their pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			env := tc.env
			env.Config, env.Client = &rest.Config{Host: "x"}, fake.NewClientset(poolNode("a", "batch", ""))
			if err := env.Complete(); err != nil {
				t.Fatal(err)
			}
			s := newScope(&env, "x")
			if err := schedulerCoexistence(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			for key, want := range tc.want {
				if !strings.Contains(s.details[key], want) {
					t.Errorf("detail %s: %q, want %q", key, s.details[key], want)
				}
			}
		})
	}
}
