// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// testInUse checks that, while kube-apiserver uses the tunnel, neither an
// uninstallation nor any bundle that would delete agents or what they need passes the
// preflight, nor any that would leave no node for the agents. The finding names what
// would be deleted or stranded. Plans that keep them pass.
func testInUse(e env) {
	e.apply(objects(e.t, nil), install.Options{})
	apiServer := e.tunnelUser()
	e.taintedNodes()
	const daemonSet, account, binding = "DaemonSet kube-system/konnectivity-agent", "ServiceAccount kube-system/konnectivity-agent", "ClusterRoleBinding system:konnectivity-server:tokenreviews"
	all := []string{daemonSet, account, binding}
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.Bundle)
		want []string
	}{
		"the same":          {func(*v1alpha1.Bundle) {}, nil},
		"another scheduler": {func(b *v1alpha1.Bundle) { b.Scheduler.Name = "other" }, nil},
		"no scheduler":      {func(b *v1alpha1.Bundle) { b.Scheduler.Enabled = ptr.To(false) }, nil},
		"Service goes":      {func(b *v1alpha1.Bundle) { b.Konnectivity.ServerHost = "192.0.2.1" }, nil},
		"no tunnel":         {func(b *v1alpha1.Bundle) { b.Konnectivity.Enabled = ptr.To(false) }, all},
		"another namespace": {func(b *v1alpha1.Bundle) { b.Namespace = "elsewhere" }, []string{daemonSet, account}},
		"another account":   {func(b *v1alpha1.Bundle) { b.Konnectivity.AgentServiceAccount = "other" }, []string{account}},
		"another form":      {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Form = v1alpha1.FormDeployment }, []string{daemonSet}},
		"no node's labels":  {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.NodeSelector = map[string]string{"pool": "typo"} }, []string{daemonSet}},
		"a node's labels":   {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.NodeSelector = map[string]string{"pool": "a"} }, nil},
		"no node's taints": {func(b *v1alpha1.Bundle) {
			b.Konnectivity.Agent.Tolerations = &v1alpha1.Tolerations{{Key: "other", Operator: corev1.TolerationOpExists}}
		}, []string{daemonSet}},
	} {
		b := &v1alpha1.Bundle{}
		tc.edit(b)
		before := e.versions()
		findings, err := install.Preflight(e.t.Context(), e.cfg, b, false)
		if err != nil {
			e.t.Fatalf("%s: %v", name, err)
		}
		e.wantInUse(name, findings, tc.want)
		if after := e.versions(); len(after) != len(before) {
			e.t.Errorf("%s: the preflight changed the cluster", name)
		}
	}
	uninstall := func() []install.Finding {
		e.t.Helper()
		findings, err := install.PreflightUninstall(e.t.Context(), e.cfg)
		if err != nil {
			e.t.Fatal(err)
		}
		return findings
	}
	e.wantInUse("uninstall", uninstall(), all)
	// Uninstall a scheduler that runs next to the agents of `fairlead up`.
	e.clean()
	e.apply(objects(e.t, nil), install.Options{Party: install.Provider})
	e.apply(objects(e.t, batchAlone), install.Options{})
	e.wantInUse("uninstall of a scheduler", uninstall(), nil)
	apiServer()
	e.clean()
	e.apply(objects(e.t, nil), install.Options{})
	e.wantInUse("uninstall, no egress selector", uninstall(), nil)
}

// testInUseNow checks the runs themselves: kube-apiserver may begin to use the tunnel after the preflight, and the problems of the
// plan that the preflight has seen may be gone. A run without KeepTunnel goes on.
func testInUseNow(e env) {
	e.apply(objects(e.t, nil), install.Options{})
	e.tunnelUser()
	e.taintedNodes()
	deployments := e.client.AppsV1().Deployments("kube-system")
	scale := func(n int32) {
		e.t.Helper()
		d, err := deployments.Get(e.t.Context(), "my-scheduler", metav1.GetOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		d.Spec.Replicas = &n
		if _, err := deployments.Update(e.t.Context(), d, metav1.UpdateOptions{FieldManager: "other"}); err != nil {
			e.t.Fatal(err)
		}
	}
	without := &v1alpha1.Bundle{}
	without.Konnectivity.Enabled = ptr.To(false)
	scale(5) // a conflict, which has nothing to do with the tunnel
	findings, err := install.Preflight(e.t.Context(), e.cfg, without, false)
	if err != nil {
		e.t.Fatal(err)
	}
	all := []string{"DaemonSet kube-system/konnectivity-agent", "ServiceAccount kube-system/konnectivity-agent", "ClusterRoleBinding system:konnectivity-server:tokenreviews"}
	e.wantInUse("a plan with a conflict", findings, all)
	scale(2)

	noTunnel := objects(e.t, func(b *v1alpha1.Bundle) { b.Konnectivity.Enabled = ptr.To(false) })
	nowhere := objects(e.t, func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.NodeSelector = map[string]string{"pool": "typo"} })
	before := e.versions()
	for name, run := range map[string]func() error{
		"no tunnel": func() error {
			_, err := install.Apply(e.t.Context(), e.cfg, noTunnel, install.Options{KeepTunnel: true}.Quick())
			return err
		},
		"no tunnel, dry run": func() error {
			_, err := install.Apply(e.t.Context(), e.cfg, noTunnel, install.Options{KeepTunnel: true, DryRun: true}.Quick())
			return err
		},
		"no node": func() error {
			_, err := install.Apply(e.t.Context(), e.cfg, nowhere, install.Options{KeepTunnel: true}.Quick())
			return err
		},
		"uninstall": func() error {
			_, err := install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{KeepTunnel: true}.Quick())
			return err
		},
	} {
		var blocked *install.BlockedError
		if err := run(); !errors.As(err, &blocked) || len(blocked.Problems) != 1 || blocked.Problems[0].Reason != install.ReasonInUse ||
			!strings.Contains(err.Error(), "kube-apiserver-node-1") || blocked.Problems[0].Hint == "" || blocked.Problems[0].Object.Name == "" {
			e.t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
	e.apply(objects(e.t, nil), install.Options{KeepTunnel: true})
	if r := e.apply(noTunnel, install.Options{}); r.Count(install.Deleted) == 0 {
		e.t.Errorf("%+v", r.Objects)
	}
}

func (e env) wantInUse(name string, findings []install.Finding, lost []string) {
	e.t.Helper()
	for _, f := range findings {
		if f.ID != install.FindingInUse {
			continue
		}
		for _, object := range lost {
			if !strings.Contains(f.Message, object) {
				e.t.Errorf("%s: %s is not in %q", name, object, f.Message)
			}
		}
		if got := strings.Count(f.Message, "konnectivity-agent") + strings.Count(f.Message, "system:konnectivity-server"); got != len(lost) || f.Warning || f.Hint == "" {
			e.t.Errorf("%s: found %+v, want %d objects", name, f, len(lost))
		}
		return
	}
	if len(lost) > 0 {
		e.t.Errorf("%s: nothing found, want %v", name, lost)
	}
}

// tunnelUser creates a Pod of a kube-apiserver that uses the tunnel. The returned
// function deletes it.
// taintedNodes makes two nodes, both of which only the agents' usual tolerations allow.
func (e env) taintedNodes() {
	e.t.Helper()
	for name, labels := range map[string]map[string]string{"inuse-1": {"pool": "a"}, "inuse-2": nil} {
		labels = maps.Clone(labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels["kubernetes.io/os"] = "linux"
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoSchedule}}},
		}
		if _, err := e.client.CoreV1().Nodes().Create(e.t.Context(), node, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = e.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
}

func (e env) tunnelUser() func() {
	e.t.Helper()
	// The controller that creates it does not run here.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := e.client.CoreV1().ServiceAccounts("kube-system").Create(e.t.Context(), account, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	pods := e.client.CoreV1().Pods("kube-system")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-node-1", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "c", Image: "x", Command: []string{"kube-apiserver", "--egress-selector-config-file=/x"}}},
		},
	}
	if _, err := pods.Create(e.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	remove := func() {
		_ = pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	}
	e.t.Cleanup(remove)
	return remove
}
