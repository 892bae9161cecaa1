// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
)

// recovery is how long things may take to come back on a busy machine.
const recovery = 2 * time.Minute

// declarative is a cluster with an operator, a Bundle, and the TunnelPool "p" to convert.
type declarative struct {
	*home
	client kubernetes.Interface
	dyn    dynamic.Interface
}

// TestDeclarativeAPI breaks what the conversion of objects needs, on one cluster. Kube-apiserver
// calls the webhook through the tunnel.
func TestDeclarativeAPI(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must("up", "--name", "dev", "--nodes", "1", "--agents", "2", "--operator", "--no-verify", "--quiet")
	cfg := h.restConfig("dev")
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{} // the old version is deprecated
	d := &declarative{home: h, client: kubernetes.NewForConfigOrDie(cfg), dyn: dynamic.NewForConfigOrDie(cfg)}
	d.create("v1alpha1", "bundles", "", "Bundle", "default", map[string]any{"konnectivity": map[string]any{"agentPort": int64(8140)}})
	d.create("v1alpha1", "tunnelpools", "default", "TunnelPool", "p", map[string]any{"hostNetwork": true})
	if err := harness.WaitReconciled(t.Context(), d.dyn, recovery); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		run  func(*declarative, *testing.T)
	}{
		{"an agent is killed", (*declarative).agentKilled},
		{"the webhook is dead", (*declarative).webhookDead},
		{"the CA is rotated", (*declarative).caRotated},
		{"everything is killed", (*declarative).everythingKilled},
	} {
		t.Run(step.name, func(t *testing.T) {
			h.t = t
			step.run(d, t)
		})
	}
	h.t = t
	h.must("down", "--name", "dev", "--quiet")
	h.nothingLeft("dev")
}

func (d *declarative) resource(version, plural, namespace string) dynamic.ResourceInterface {
	r := d.dyn.Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: version, Resource: plural})
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}

func (d *declarative) create(version, plural, namespace, kind, name string, spec map[string]any) {
	d.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fairlead.dev/" + version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	if _, err := d.resource(version, plural, namespace).Create(d.t.Context(), o, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// read reads the pool in the old version, which takes a conversion.
func (d *declarative) read(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	pool, err := d.resource("v1alpha1", "tunnelpools", "default").Get(ctx, "p", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if on, _, err := unstructured.NestedBool(pool.Object, "spec", "hostNetwork"); err != nil || !on {
		return fmt.Errorf("the pool is %v: %w", pool.Object, err)
	}
	return nil
}

// readable waits until the pool can be read in the old version.
func (d *declarative) readable(t *testing.T) {
	t.Helper()
	if err := harness.Wait(t.Context(), recovery, "conversions", func(ctx context.Context) error { return d.read(ctx, 5*time.Second) }); err != nil {
		t.Fatal(err)
	}
}

// attempt is one read of load.
type attempt struct {
	began, ended time.Time
	err          error
}

// failed reports whether a read had no answer in the time in which clients expect one.
func (a attempt) failed() bool { return a.err != nil || a.ended.Sub(a.began) > killBound }

// outage is the time from the begin of the first read that failed to the end of the last one, and how many failed.
func outage(reads []attempt) (gap time.Duration, failed int) {
	var first, last time.Time
	for _, a := range reads {
		if !a.failed() {
			continue
		}
		if failed++; failed == 1 || a.began.Before(first) {
			first = a.began
		}
		if a.ended.After(last) {
			last = a.ended
		}
	}
	return last.Sub(first), failed
}

// load reads 50 times a second until the function that it returns is called, which returns the reads.
func (d *declarative) load(t *testing.T) (stop func() []attempt) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var group sync.WaitGroup
	var all []attempt
	group.Go(func() {
		ticker := time.NewTicker(time.Second / 50)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			group.Go(func() {
				began := time.Now()
				err := d.read(context.WithoutCancel(ctx), 20*time.Second)
				a := attempt{began: began, ended: time.Now(), err: err}
				if a.failed() {
					t.Logf("a read failed after %v: %v", a.ended.Sub(began), err)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, a)
			})
		}
	})
	return func() []attempt {
		cancel()
		group.Wait()
		return all
	}
}

// TestOutage: reads that hang count as those that fail, and a single one has its own time.
func TestOutage(t *testing.T) {
	begin := time.Now()
	read := func(began, ended time.Duration, err error) attempt {
		return attempt{begin.Add(began), begin.Add(ended), err}
	}
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		reads  []attempt
		gap    time.Duration
		failed int
	}{
		"none":             {nil, 0, 0},
		"all good":         {[]attempt{read(0, time.Second, nil), read(time.Second, 2*time.Second, nil)}, 0, 0},
		"one hangs":        {[]attempt{read(time.Second, 16*time.Second, nil), read(2*time.Second, 3*time.Second, nil)}, 15 * time.Second, 1},
		"one fails":        {[]attempt{read(0, time.Second, refused), read(2*time.Second, 3*time.Second, nil)}, time.Second, 1},
		"in another order": {[]attempt{read(3*time.Second, 4*time.Second, refused), read(time.Second, 2*time.Second, refused)}, 3 * time.Second, 2},
	} {
		if gap, failed := outage(c.reads); gap != c.gap || failed != c.failed {
			t.Errorf("%s: %d failed for %v, want %d for %v", name, failed, gap, c.failed, c.gap)
		}
	}
}

func (d *declarative) pid(t *testing.T, program string) int {
	t.Helper()
	return d.status("dev").find(t, program).PID
}

func (d *declarative) signal(t *testing.T, s syscall.Signal, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if err := syscall.Kill(d.pid(t, program), s); err != nil {
			t.Fatalf("%s: %v", program, err)
		}
	}
}

// killBound is for how long conversions may fail when an agent is killed.
const killBound = 2 * time.Second

// agentKilled: of 50 conversions per second, those of 2 s at most fail or hang when an agent is killed. One
// of the two carries the API server's connection to the webhook. A busy machine has a second try.
func (d *declarative) agentKilled(t *testing.T) {
	for _, agent := range []string{"konnectivity-agent-0", "konnectivity-agent-1"} {
		gap := d.gapWithout(t, agent)
		if gap > killBound {
			gap = d.gapWithout(t, agent)
		}
		if gap > killBound {
			t.Errorf("%s: reads failed or hung for %v, want %v at most", agent, gap, killBound)
		}
	}
}

// gapWithout kills an agent, and returns for how long reads fail then.
func (d *declarative) gapWithout(t *testing.T, agent string) (gap time.Duration) {
	t.Helper()
	d.healthy(t)
	d.readable(t)
	stop := d.load(t)
	time.Sleep(2 * time.Second) // the load before anything happens
	d.signal(t, syscall.SIGKILL, agent)
	time.Sleep(6 * time.Second) // the load after it, three times as long as reads may fail
	reads := stop()
	if len(reads) < 100 {
		t.Errorf("%d reads in 8 s are no load", len(reads))
	}
	gap, failed := outage(reads)
	t.Logf("%s: %d of %d reads failed, for %v", agent, failed, len(reads), gap)
	return gap
}

// webhookDead: while the operator is stopped and objects are stored in the old version, which is the storage version then, its readers
// and writers, the deletion of a namespace without such objects and the garbage collector do their work. A namespace with
// one, which kube-controller-manager lists in the preferred version, goes when the webhook is back.
func (d *declarative) webhookDead(t *testing.T) {
	ctx := t.Context()
	d.readable(t)
	d.storedIn(t, "v1alpha1")
	for _, name := range []string{"gone", "held"} {
		if _, err := d.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.create("v1alpha1", "tunnelpools", "held", "TunnelPool", "q", map[string]any{})
	owner, owned := d.owned(t)
	pid := d.pid(t, operator.Name)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := d.resource("v1beta1", "tunnelpools", "default").Get(short, "p", metav1.GetOptions{}); err == nil {
		t.Error("the other version is read without the webhook, so the test proves nothing")
	}
	if err := d.read(ctx, 20*time.Second); err != nil {
		t.Errorf("a read in the storage version: %v", err)
	}
	// The watch caches of the other version, which kube-controller-manager uses, cannot follow this.
	d.create("v1alpha1", "tunnelpools", "default", "TunnelPool", "later", map[string]any{})
	d.goesWithoutWebhook(t, owner, owned)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := harness.Wait(ctx, recovery, "the namespace with a pool to go", func(ctx context.Context) error { return d.isGone(ctx, "held") }); err != nil {
		t.Error(err)
	}
	if err := d.resource("v1alpha1", "tunnelpools", "default").Delete(ctx, "later", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	d.storedIn(t, "v1beta1")
	d.readable(t)
}

// owned creates a ConfigMap and another one that it owns.
func (d *declarative) owned(t *testing.T) (owner, owned string) {
	t.Helper()
	maps := d.client.CoreV1().ConfigMaps("default")
	o, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	of := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID}}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: of}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return "owner", "owned"
}

// goesWithoutWebhook deletes both namespaces and the owner, and waits until the namespace without pools and the owned object are gone.
func (d *declarative) goesWithoutWebhook(t *testing.T, owner, owned string) {
	t.Helper()
	ctx, maps := t.Context(), d.client.CoreV1().ConfigMaps("default")
	began := time.Now()
	for _, name := range []string{"held", "gone"} {
		if err := d.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.Delete(ctx, owner, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := harness.Wait(ctx, recovery, "the namespace and the owned object to go", func(ctx context.Context) error {
		nsErr := d.isGone(ctx, "gone")
		_, err := maps.Get(ctx, owned, metav1.GetOptions{})
		if nsErr != nil || !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace: %v; owned object: %v", nsErr, err) //nolint:errorlint // two answers
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("the namespace and the owned object were gone after %v", time.Since(began))
	if err := d.isGone(ctx, "held"); err == nil {
		t.Error("a namespace with a pool of the old version went without the webhook")
	}
}

// isGone fails while a namespace exists.
func (d *declarative) isGone(ctx context.Context, name string) error {
	ns, err := d.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("namespace %s: %+v", name, ns.Status)
}

// everythingKilled: with all agents, the operator and the API server killed, all comes back without
// a hand: agents need the API server, the webhook needs agents. The operator's own objects are stored in the old
// version, so it needs the webhook, which it serves itself.
func (d *declarative) everythingKilled(t *testing.T) {
	d.readable(t)
	d.storedIn(t, "v1alpha1")
	killed := []string{"konnectivity-agent-0", "konnectivity-agent-1", operator.Name, "kube-apiserver"}
	before := map[string]int{}
	for _, program := range killed {
		before[program] = d.pid(t, program)
	}
	d.signal(t, syscall.SIGKILL, killed...)
	if err := harness.Wait(t.Context(), recovery, "a read in the new version", func(ctx context.Context) error {
		_, err := d.resource("v1beta1", "tunnelpools", "default").Get(ctx, "p", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d.readable(t)
	d.healthy(t)
	for _, program := range killed {
		if now := d.pid(t, program); now == before[program] {
			t.Errorf("%s has process %d as before, so it was not killed", program, now)
		}
	}
	if err := harness.WaitReconciled(t.Context(), d.dyn, recovery); err != nil {
		t.Error(err)
	}
	d.storedIn(t, "v1beta1")
}

// storedIn makes a version the storage version of all definitions of two versions, and waits until all objects are
// stored in it alone, as the operator rewrites them.
func (d *declarative) storedIn(t *testing.T, version string) {
	t.Helper()
	definitions := d.dyn.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	for _, name := range []string{"bundles.fairlead.dev", "tunnelpools.fairlead.dev"} {
		set := false
		if err := harness.Wait(t.Context(), recovery, name+" to be stored in "+version, func(ctx context.Context) error {
			live, err := definitions.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !set {
				versions, _, err := unstructured.NestedSlice(live.Object, "spec", "versions")
				if err != nil {
					return err
				}
				for _, v := range versions {
					v.(map[string]any)["storage"] = v.(map[string]any)["name"] == version
				}
				if err := unstructured.SetNestedSlice(live.Object, versions, "spec", "versions"); err != nil {
					return err
				}
				if live, err = definitions.Update(ctx, live, metav1.UpdateOptions{}); err != nil {
					return err
				}
				set = true
			}
			stored, _, err := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
			if err == nil && !slices.Equal(stored, []string{version}) {
				err = fmt.Errorf("status.storedVersions is %v", stored)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *declarative) healthy(t *testing.T) {
	t.Helper()
	if err := harness.Wait(t.Context(), recovery, "the cluster to be healthy", func(context.Context) error {
		if s := d.status("dev"); !s.Healthy { //nolint:contextcheck // has the test's
			return fmt.Errorf("%+v", s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
