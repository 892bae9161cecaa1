// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// slowKind has a conversion webhook at a URL; the CA comes second.
const slowKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.slow.fairlead.dev}
spec:
  group: slow.fairlead.dev
  scope: Cluster
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %q}}
`

// startSlowConversion makes a kind whose conversion takes longer than a second.
func startSlowConversion(kubectl string) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		webhook := httptest.NewTLSServer(http.HandlerFunc(convertSlowly))
		atEnd(ctx, t, func(context.Context) { webhook.Close() })
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
		manifest := fmt.Sprintf(slowKind, webhook.URL+"/convert", base64.StdEncoding.EncodeToString(ca))
		atEnd(ctx, t, func(ctx context.Context) {
			if out, err := suite.Kubectl(ctx, kubectl, manifest, "delete", "--ignore-not-found", "-f", "-"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		for _, stdin := range []string{manifest, "{apiVersion: slow.fairlead.dev/v1, kind: Thing, metadata: {name: x}}"} {
			if err := harness.Wait(ctx, 30*time.Second, "a kind with a slow conversion", func(ctx context.Context) error {
				out, err := suite.Kubectl(ctx, kubectl, stdin, "apply", "-f", "-")
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// convertSlowly writes the wanted version into the objects of a ConversionReview.
func convertSlowly(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Response   map[string]any `json:"response"`
		Request    struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	time.Sleep(2 * time.Second) // longer than the second for which the alert waits
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
	}
	review.Response = map[string]any{"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // kube-apiserver reports a failure
}

// readSlowly reads the object in the version that is not stored.
func readSlowly(kubectl string) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		if out, err := suite.Kubectl(ctx, kubectl, "", "get", "--raw", "/apis/slow.fairlead.dev/v2/things/x"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// refuseBindings has kube-apiserver refuse the binding of a Pod of the second scheduler.
func refuseBindings(kubectl string) func(context.Context, *testing.T) {
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-bindings.fairlead.test}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods/binding], operations: [CREATE]}]}
  validations: [{expression: "object.metadata.name != 'cannot-be-bound'", message: "refused by a test"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-bindings.fairlead.test}
spec: {policyName: refuse-bindings.fairlead.test, validationActions: [Deny]}
`
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		atEnd(ctx, t, func(ctx context.Context) {
			if out, err := suite.Kubectl(ctx, kubectl, policy, "delete", "--ignore-not-found", "-f", "-"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		if out, err := suite.Kubectl(ctx, kubectl, policy, "apply", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		pods := suite.Client.CoreV1().Pods(harness.Namespace)
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "cannot-be-bound"}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}
		if err := harness.Wait(ctx, time.Minute, "bindings to be refused", func(ctx context.Context) error { // kube-apiserver compiles the policy
			if err := pods.Bind(ctx, binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil || !strings.Contains(err.Error(), "refused by a test") {
				return fmt.Errorf("a binding is not refused: %v", err) //nolint:errorlint // it may be nil
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cannot-be-bound", Namespace: harness.Namespace}, Spec: corev1.PodSpec{
			SchedulerName: "my-scheduler", Containers: []corev1.Container{{Name: "none", Image: "none"}},
		}}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		atEnd(ctx, t, func(ctx context.Context) {
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// deleteLease deletes the Lease of the second scheduler until the standby takes it. The leader goes on for the time
// that it has to renew it: both say that they lead.
func deleteLease() func(context.Context, *testing.T) {
	var leader string
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		leases := suite.Client.CoordinationV1().Leases("kube-system")
		lease, err := leases.Get(ctx, "my-scheduler", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return // it is made again soon
		}
		if leader == "" {
			leader = *lease.Spec.HolderIdentity
		}
		if *lease.Spec.HolderIdentity != leader {
			return
		}
		if err := leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
