// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// operator installs the operator, which adopts what the command has installed and follows a Bundle of the old version. The API server
// reaches its webhook through the tunnel alone. Then the operator goes, and what it applied stays.
func operator(ctx context.Context, t *testing.T) {
	client, err := dynamic.NewForConfig(suite.Config)
	if err != nil {
		t.Fatal(err)
	}
	bundles := func(version string) dynamic.ResourceInterface {
		return harness.Bundles(client, version)
	}
	scheduler := func() (uid string, replicas int32) {
		t.Helper()
		d, err := suite.Client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(d.UID), *d.Spec.Replicas
	}
	uid, _ := scheduler()
	here(ctx, t, "install", "--operator")
	object := func(replicas int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": map[string]any{"name": "default"},
			"spec": map[string]any{"scheduler": map[string]any{"replicas": replicas}},
		}}
	}
	firewall, err := suite.RaiseFirewall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := firewall.Lower(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	// Right after the install the endpoints of the webhook may not have reached kube-proxy.
	err = harness.Wait(ctx, time.Minute, "the API server to take a Bundle of the old version", func(ctx context.Context) error {
		_, err := bundles("v1alpha1").Create(ctx, object(3), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitReconciled(ctx, client, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if now, replicas := scheduler(); now != uid || replicas != 3 {
		t.Errorf("the scheduler is Deployment %s with %d replicas, want that of the command, %s, with 3", now, replicas, uid)
	}
	if u, err := bundles("v1alpha1").Get(ctx, "default", metav1.GetOptions{}); err != nil || u.GetAPIVersion() != "fairlead.dev/v1alpha1" {
		t.Errorf("the Bundle in the old version: %v %v", u, err)
	}
	if err := firewall.Tight(); err != nil {
		t.Error(err)
	}
	here(ctx, t, "uninstall", "--operator", "--custom-resources=delete", "--yes")
	if now, replicas := scheduler(); now != uid || replicas != 3 {
		t.Errorf("without the operator, the scheduler is Deployment %s with %d replicas, want %s with 3", now, replicas, uid)
	}
	here(ctx, t, "install")
	if now, replicas := scheduler(); now != uid || replicas != 2 {
		t.Errorf("after the next install, the scheduler is Deployment %s with %d replicas, want %s with 2", now, replicas, uid)
	}
}
