// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// otherNode adds the kube-apiserver Pod of another control plane node.
func (a *kubeadmAPI) otherNode(flags ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-cp2", Labels: map[string]string{"component": apiServer}},
		Spec:       corev1.PodSpec{NodeName: "cp2", Containers: []corev1.Container{{Name: apiServer, Command: append([]string{apiServer}, flags...)}}},
	}}
}

// ofTwo returns options for one of two control plane nodes.
func (a *kubeadmAPI) ofTwo(root string) Options {
	o := a.options(root)
	o.Bundle = newBundle()
	o.Bundle.Konnectivity.Server.Count = ptr.To(int32(2))
	return o
}

const tunnelFlag = "--" + apiserver.ConfigFlag + "=" + v1alpha1Egress

// TestRollbackLeavesOthersInKubeadmConfig checks that a rollback removes from
// kubeadm's stored configuration neither what another node has added meanwhile, nor
// what another node depends on.
func TestRollbackLeavesOthersInKubeadmConfig(t *testing.T) {
	t.Parallel()
	withTunnel, _, err := manifests.AddToCluster(storedByKubeadm, v1alpha1.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the other one was faster", func(t *testing.T) {
		root, api := testNode(t), startKubeadmAPI(t)
		o := failingOptions(root, func() { api.set(withTunnel) })
		withAPI(&o, api.URL)
		if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
			t.Fatal(err)
		}
		api.want(t, true)
	})
	for name, tc := range map[string]struct {
		flags []string
		stays bool
	}{"the other one has the tunnel": {[]string{tunnelFlag}, true}, "the other one has a server alone": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			root, api := testNode(t), startKubeadmAPI(t)
			api.otherNode(tc.flags...)
			o := api.ofTwo(root)
			stopAfter(t, &o, "ConfigMap", func() error { _, err := Install(t.Context(), o); return err })
			mustUninstall(t, api.ofTwo(root))
			api.want(t, tc.stays)
			sameTrees(t, snapshot(t, pristine), snapshot(t, root))
		})
	}
}

// TestUninstallAndOthersInKubeadmConfig checks that the last node with the tunnel
// removes it from the stored configuration. A node that has only a server does not
// count, as it would never remove it.
func TestUninstallAndOthersInKubeadmConfig(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags []string
		stays bool
	}{"tunnel": {[]string{tunnelFlag}, true}, "server only": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			root, api := testNode(t), startKubeadmAPI(t)
			api.otherNode(tc.flags...)
			mustInstall(t, api.ofTwo(root))
			r, err := Uninstall(t.Context(), api.ofTwo(root))
			if err != nil || (len(r.Left) > 0) != tc.stays {
				t.Errorf("%+v, %v", r, err)
			}
			api.want(t, tc.stays)
		})
	}
}

// TestUninstallNamesKubeadmConfig checks that a stored configuration which fairlead
// did not change stays, and that the result names it: "kubeadm upgrade" would give
// this node a flag without its file.
func TestUninstallNamesKubeadmConfig(t *testing.T) {
	t.Parallel()
	withTunnel, _, err := manifests.AddToCluster(storedByKubeadm, v1alpha1.New())
	if err != nil {
		t.Fatal(err)
	}
	for stored, want := range map[string]int{storedByKubeadm: 0, withTunnel: 1} {
		root, api := testNode(t), startKubeadmAPI(t)
		api.set(stored)
		o := api.options(root)
		o.ServerOnly = true
		mustInstall(t, o)
		r, err := Uninstall(t.Context(), api.options(root))
		if err != nil || len(r.Left) != want || want > 0 && !strings.Contains(r.Left[0], "kubeadm upgrade") {
			t.Errorf("%+v, %v; want %d left", r, err, want)
		}
		api.want(t, want > 0)
		sameTrees(t, snapshot(t, pristine), snapshot(t, root))
	}
}

// TestRollbackOfUpdateAfterKill covers an installation over an earlier one that was killed
// after it had changed kubeadm's stored configuration: its rollback restores the part of the
// earlier bundle, also while another node has the tunnel.
func TestRollbackOfUpdateAfterKill(t *testing.T) {
	t.Parallel()
	root, api := testNode(t), startKubeadmAPI(t)
	api.otherNode(tunnelFlag)
	mustInstall(t, api.ofTwo(root))
	before, tree := api.stored(), snapshot(t, root)
	o := api.ofTwo(root)
	o.Bundle.ControlPlane.EgressSelectorFile = "/etc/kubernetes/other/egress.yaml"
	stopAfter(t, &o, "ConfigMap", func() error { _, err := Install(t.Context(), o); return err })
	if now := api.stored(); now == before {
		t.Fatal("the stored configuration was not changed")
	}
	if _, err := Uninstall(t.Context(), api.ofTwo(root)); !errors.Is(err, ErrStillInstalled) {
		t.Errorf("%v, want ErrStillInstalled", err)
	}
	if now := api.stored(); now != before {
		t.Errorf("after the rollback ConfigMap %s is\n%s, want\n%s", manifests.KubeadmConfigMap, now, before)
	}
	sameTrees(t, tree, snapshot(t, root))
}

// TestRecordOfKubeadmConfig covers a bundle that differs only in a name that apiserver.crt and
// kubeadm's stored configuration have already: nothing changes but the record.
func TestRecordOfKubeadmConfig(t *testing.T) {
	t.Parallel()
	root, api := testNode(t), startKubeadmAPI(t)
	api.otherNode(tunnelFlag)
	first, second := api.ofTwo(root), api.ofTwo(root)
	second.Bundle.Konnectivity.ServerHost = "kubernetes.default.svc"
	for _, o := range []Options{first, second} { // the other node is first each time
		text, _, err := manifests.AddToCluster(storedByKubeadm, o.Bundle)
		if err != nil {
			t.Fatal(err)
		}
		api.set(text)
		mustInstall(t, o)
		if r, err := Install(t.Context(), o); err != nil || r.Changed {
			t.Errorf("again: %+v, %v", r, err)
		}
	}
	api.mu.Lock()
	api.pods = nil
	api.mu.Unlock()
	mustUninstall(t, second)
	api.want(t, false)
}

func (a *kubeadmAPI) stored() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cm.Data[manifests.KubeadmKey]
}

// TestStatusOfKubeadmConfig covers a stored configuration from which the tunnel was
// removed by hand.
func TestStatusOfKubeadmConfig(t *testing.T) {
	t.Parallel()
	root, api := testNode(t), startKubeadmAPI(t)
	mustInstall(t, api.options(root))
	status := func() string {
		o := api.options(root)
		o.health = func(string) error { return nil }
		s, err := Inspect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(s.Problems, "\n")
	}
	if text := status(); text != "" {
		t.Errorf("problems: %s", text)
	}
	api.set(storedByKubeadm)
	if text := status(); !strings.Contains(text, manifests.KubeadmConfigMap) || !strings.Contains(text, "extraArgs") || !strings.Contains(text, "controlplane install") {
		t.Errorf("problems: %s", text)
	}
}
