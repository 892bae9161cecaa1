// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	secondLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"
	stockLease  = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
)

// lead renews a Lease for the holder that the function returns, until the test ends.
func lead(t *testing.T, api *stubAPI, path string, holder func() string) {
	t.Helper()
	renew := func() {
		if h := holder(); h != "" {
			api.put(path, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: path[strings.LastIndex(path, "/")+1:], Namespace: "kube-system"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &h, LeaseDurationSeconds: ptr.To(int32(1)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
			})
		}
	}
	renew()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				renew()
			}
		}
	}()
}

func always(holder string) func() string { return func() string { return holder } }

// TestThreePods proves that the check passes if each pod of the documentation's example has exactly
// one Scheduled event, from the scheduler that it names, and that it sees each way in which this can
// go wrong.
// It observes SCHED-01, SCHED-40 and SCHED-42 of docs/requirements.md.
func TestThreePods(t *testing.T) {
	tests := map[string]struct {
		broken  func(*stubAPI)
		wantErr string
	}{
		"each by its own": {nil, ""},
		"second scheduler missing": {func(a *stubAPI) {
			a.bind = func(p *corev1.Pod) (string, string) {
				if p.Spec.SchedulerName == DefaultSchedulerName {
					return "", ""
				}
				return "node-0", p.Spec.SchedulerName
			}
		}, "annotation-second-scheduler is not bound to a node, and no scheduler handles it"},
		"stock scheduler binds all": {func(a *stubAPI) {
			a.bind = func(*corev1.Pod) (string, string) { return "node-0", stockSchedulerName }
		}, `names scheduler "my-scheduler" but was bound by "default-scheduler"`},
		"second scheduler binds all": {func(a *stubAPI) {
			a.bind = func(*corev1.Pod) (string, string) { return "node-0", DefaultSchedulerName }
		}, `names scheduler "default-scheduler" but was bound by "my-scheduler"`},
		"bound twice": {func(a *stubAPI) { a.events = 2 }, "was bound 2 times"},
		"no events":   {func(a *stubAPI) { a.events = 0 }, "no Scheduled event names the scheduler"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.broken != nil {
				tc.broken(api)
			}
			limit := 10 * time.Second
			if tc.wantErr == "" {
				limit = time.Minute
			}
			res := runOne(t.Context(), api.env(t), checkOf("x", threePods), Options{Timeout: limit}.withDefaults(), shared{})
			wantResult(t, res, tc.wantErr)
		})
	}
}

func wantResult(t *testing.T, res Result, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && res.Status != OK:
		t.Errorf("failed: %s", res.Error)
	case wantErr != "" && (res.Status != Failed || !strings.Contains(res.Error, wantErr)):
		t.Errorf("got %s %q, want %q", res.Status, res.Error, wantErr)
	}
}

// TestExamplePodsAreTheDocuments observes SCHED-40 of docs/requirements.md.
// It also observes OLD-08 of docs/requirements.md.
func TestExamplePodsAreTheDocuments(t *testing.T) {
	want := [][]string{
		{"no-annotation", "pod-with-no-annotation-container", ""},
		{"annotation-default-scheduler", "pod-with-default-annotation-container", "default-scheduler"},
		{"annotation-second-scheduler", "pod-with-second-annotation-container", "my-scheduler"},
	}
	for i, p := range examplePods("my-scheduler", "image") { // the documentation's example
		got := []string{p.pod.Name, p.pod.Spec.Containers[0].Name, p.pod.Spec.SchedulerName}
		if strings.Join(got, " ") != strings.Join(want[i], " ") || p.pod.Labels["name"] != "multischeduler-example" || p.pod.Spec.Containers[0].Image != "image" {
			t.Errorf("pod %d: got %q, want %q", i, got, want[i])
		}
	}
}

// TestSchedulerLease proves that the check passes if one replica holds the configured Lease, and
// fails if none does or if ours takes the default scheduler's Lease, kube-system/kube-scheduler.
// It observes SCHED-35 of docs/requirements.md.
func TestSchedulerLease(t *testing.T) {
	var turn atomic.Int64
	tests := map[string]struct {
		second, stock func() string
		owns          func(context.Context, string) (bool, error)
		wantErr       string
	}{
		"two holders":               {second: always("a_1"), stock: always("b_1")},
		"stock without election":    {second: always("a_1")},
		"no replica ever led":       {stock: always("b_1"), wantErr: "not found"},
		"the same holder":           {second: always("a_1"), stock: always("a_1"), wantErr: "holds the default scheduler's Lease"},
		"another replica of ours":   {second: always("a_1"), stock: always("a_2"), owns: func(_ context.Context, h string) (bool, error) { return h == "a_2", nil }, wantErr: "holds the default scheduler's Lease"},
		"identity cannot be judged": {second: always("a_1"), stock: always("a_2"), owns: func(context.Context, string) (bool, error) { return false, errors.New("no list") }, wantErr: "no list"},
		"replicas fight over it":    {second: func() string { return fmt.Sprintf("a_%d", turn.Add(1)) }, wantErr: "during the check"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.second != nil {
				lead(t, api, secondLease, tc.second)
			}
			if tc.stock != nil {
				lead(t, api, stockLease, tc.stock)
			}
			env := api.env(t)
			env.OwnsIdentity = tc.owns
			wantResult(t, runOne(t.Context(), env, checkOf("x", schedulerLease), Options{}.withDefaults(), shared{}), tc.wantErr)
		})
	}
	t.Run("dead holder", func(t *testing.T) {
		api := newStubAPI(t)
		once := atomic.Bool{}
		lead(t, api, secondLease, func() string {
			if once.Swap(true) {
				return ""
			}
			return "a_1"
		})
		wantResult(t, runOne(t.Context(), api.env(t), checkOf("x", schedulerLease), Options{}.withDefaults(), shared{}), "has no holder: a_1, the last one, has not renewed it within 1s")
	})
	t.Run("released", func(t *testing.T) {
		api := newStubAPI(t)
		api.put(secondLease, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("")}})
		wantResult(t, runOne(t.Context(), api.env(t), checkOf("x", schedulerLease), Options{}.withDefaults(), shared{}), "has no holder")
	})
}

// TestLeaseSinceTheRunBegan: a renewal while other checks ran counts, but not one of another leader.
func TestLeaseSinceTheRunBegan(t *testing.T) {
	began := time.Now()
	held := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(1)), RenewTime: &metav1.MicroTime{Time: renewed}},
		}
	}
	tests := map[string]struct {
		now     *coordinationv1.Lease
		wantErr string
	}{
		"renewed":        {held("a_1", began.Add(time.Second)), ""},
		"not renewed":    {held("a_1", began), "has no holder: a_1, the last one, has not renewed it within 1s"},
		"another leader": {held("a_2", began.Add(time.Second)), "has no holder: a_2, the last one, has not renewed it within 1s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			api.put(secondLease, held("a_1", began))
			env, c := api.env(t), checkOf("x", schedulerLease)
			c.watchesLease = true
			common := shared{lease: readLease(t.Context(), env, []Check{c})}
			if common.lease.get(t.Context()) == nil {
				t.Fatal("the Lease was not read as the run began")
			}
			api.put(secondLease, tc.now)
			wantResult(t, runOne(t.Context(), env, c, Options{}.withDefaults(), common), tc.wantErr)
		})
	}
}
