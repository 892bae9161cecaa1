// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// testAgentsLast: agents are deleted after all other workloads are gone, also in a run that finds
// the others already being deleted: their logs and webhooks need the tunnel until then. The agents
// are a Deployment that sorts before the scheduler's.
func testAgentsLast(e env) {
	e.apply(objects(e.t, func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Form = v1alpha1.FormDeployment }), install.Options{})
	deployments := e.client.AppsV1().Deployments("kube-system")
	hold := func(finalizers string) {
		if _, err := deployments.Patch(e.t.Context(), "my-scheduler", types.MergePatchType, []byte(`{"metadata": {"finalizers": `+finalizers+`}}`), metav1.PatchOptions{}); err != nil {
			e.t.Fatal(err)
		}
	}
	hold(`["example.com/other"]`)
	for run := range 2 {
		var r *install.Result
		if err := e.limited("Deployment kube-system/my-scheduler is not gone", func(limit time.Duration) (err error) {
			r, err = install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{Wait: true, Timeout: limit}.Quick())
			return err
		}); err == nil {
			e.t.Errorf("run %d does not wait for the scheduler", run)
		}
		if _, err := deployments.Get(e.t.Context(), "konnectivity-agent", metav1.GetOptions{}); err != nil {
			e.t.Errorf("run %d: the agents went before the scheduler: %v, %+v", run, err, r.Objects)
		}
	}
	hold("null")
	e.uninstall()
	if left := e.names(); len(left) != 0 {
		e.t.Errorf("left %v", left)
	}

	e.apply(objects(e.t, nil), install.Options{})
	r := e.uninstall()
	var got []string
	for _, o := range r.Objects {
		if o.Kind == "Deployment" || o.Kind == "DaemonSet" || o.Kind == "PodDisruptionBudget" {
			got = append(got, o.Name)
		}
	}
	if i := slices.Index(got, "konnectivity-agent"); i != len(got)-1 {
		e.t.Errorf("deleted in the order %q", got)
	}
}

// testUnlisted: a run that may list nothing deletes what is in the inventory and in Objects,
// and nothing else.
func testUnlisted(e env) {
	e.bystanders()
	before := e.names()
	all := objects(e.t, nil)
	e.apply(all, install.Options{})
	if err := e.client.CoreV1().ConfigMaps("kube-system").Delete(e.t.Context(), install.InventoryName, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	if _, err := install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{Objects: all, Wait: true, Timeout: time.Minute}.Quick()); err != nil {
		e.t.Fatal(err)
	}
	if diff := cmp.Diff(before, e.names()); diff != "" {
		e.t.Errorf("the cluster is not as before (-want +got):\n%s", diff)
	}
}

// onDetail does something when a run reports a text.
type onDetail struct {
	progress.Reporter
	text string
	do   func()
}

func (o onDetail) Detail(format string, a ...any) {
	if strings.Contains(fmt.Sprintf(format, a...), o.text) {
		o.do()
	}
}

// testPoolPods: the wait for the end of the bundle's agents is for their own Pods, not for those of a TunnelPool. These have the
// same labels and one more.
func testPoolPods(e env) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // its controller does not run here
	if _, err := e.client.CoreV1().ServiceAccounts("kube-system").Create(e.t.Context(), account, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	pods := e.client.CoreV1().Pods("kube-system")
	create := func(name, owner string, labels map[string]string) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: owner, Name: "konnectivity-agent", UID: types.UID(name), Controller: ptr.To(true)},
			}},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}
		if _, err := pods.Create(e.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() {
			_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		})
	}
	create("of-a-pool", "ReplicaSet", map[string]string{"k8s-app": "konnectivity-agent", konnectivity.PoolLabel: "edge"})
	e.apply(objects(e.t, nil), install.Options{})
	e.uninstall()

	create("of-the-bundle", "DaemonSet", map[string]string{"k8s-app": "konnectivity-agent"})
	e.apply(objects(e.t, nil), install.Options{})
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	waits := onDetail{Reporter: progress.Silent, text: "Pod of-the-bundle", do: cancel}
	if _, err := install.Uninstall(ctx, e.cfg, install.UninstallOptions{Wait: true, Timeout: time.Minute, Progress: waits}.Quick()); !errors.Is(err, context.Canceled) {
		e.t.Errorf("uninstall does not wait for the Pod of the bundle's agents: %v", err)
	}
}
