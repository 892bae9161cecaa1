// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// roundTripper calls before for each request.
type roundTripper struct {
	before func(*http.Request)
	next   http.RoundTripper
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	r.before(req)
	return r.next.RoundTrip(req)
}

// testUnassigned: at the moment at which uninstall, or an install that prunes, deletes
// the scheduler, the API server gives no new Pod to it; Pods that wait for it are named.
func testUnassigned(e env) {
	e.makeNamespace("sci")
	e.t.Cleanup(func() { e.dropNamespace("sci") })
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := e.client.CoreV1().ServiceAccounts("sci").Create(e.t.Context(), account, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	all := objects(e.t, func(b *v1alpha1.Bundle) {
		b.Scheduler.Assignments = []v1alpha1.Assignment{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "sci"}}}}
	})
	for name, remove := range map[string]func(*rest.Config) (*install.Result, error){
		"uninstall": func(cfg *rest.Config) (*install.Result, error) {
			return install.Uninstall(e.t.Context(), cfg, install.UninstallOptions{Timeout: time.Minute}.Quick())
		},
		"prune": func(cfg *rest.Config) (*install.Result, error) {
			return install.Apply(e.t.Context(), cfg, objects(e.t, func(b *v1alpha1.Bundle) { b.Scheduler.Enabled = ptr.To(false) }), install.Options{}.Quick())
		},
	} {
		e.apply(all, install.Options{})
		testutil.Eventually(e.t, time.Minute, func() error {
			if got := e.assignedTo(); got != "my-scheduler" {
				return fmt.Errorf("a Pod is given to %q: the API server does not apply the policy yet", got)
			}
			return nil
		})
		waits, err := e.client.CoreV1().Pods("sci").Create(e.t.Context(), podOf("sci"), metav1.CreateOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		var seen atomic.Int32
		cfg := rest.CopyConfig(e.cfg)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper{next: next, before: func(req *http.Request) {
				if req.Method != http.MethodDelete || !strings.HasSuffix(req.URL.Path, "/deployments/my-scheduler") || strings.Contains(req.URL.RawQuery, "dryRun") || !e.policiesGone() {
					return // a dry run, which comes before the policies are deleted
				}
				seen.Add(1)
				if got := e.assignedTo(); got != "default-scheduler" {
					e.t.Errorf("%s: the scheduler is deleted while a new Pod is given to %q", name, got)
				}
			}}
		})
		r, err := remove(cfg)
		if err != nil {
			e.t.Fatalf("%s: %v", name, err)
		}
		if seen.Load() == 0 {
			e.t.Errorf("%s: the Deployment was not deleted after the policies", name)
		}
		warnings := strings.Join(r.Warnings, "\n")
		for _, want := range []string{"1 Pod waits", `"my-scheduler"`, "sci/" + waits.Name} {
			if !strings.Contains(warnings, want) {
				e.t.Errorf("%s: warnings %q lack %q", name, warnings, want)
			}
		}
		if err := e.client.CoreV1().Pods("sci").Delete(e.t.Context(), waits.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			e.t.Fatal(err)
		}
	}
}

func podOf(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
}

// assignedTo is the scheduler of a new Pod in namespace sci.
func (e env) assignedTo() string {
	pod, err := e.client.CoreV1().Pods("sci").Create(context.Background(), podOf("sci"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err.Error()
	}
	return pod.Spec.SchedulerName
}

func (e env) policiesGone() bool {
	list, err := e.client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(context.Background(), metav1.ListOptions{})
	return err == nil && len(list.Items) == 0
}
