// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const (
	cronTabs   = "crontabs.stable.example.com"
	cronPath   = definitionsPath + "/" + cronTabs
	cronObject = `{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: my-new-cron-object}, spec: {cronSpec: '* * * * */5', image: my-awesome-cron-image}}`
)

func unmarshal(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// kubectl returns a function that runs the pinned kubectl.
func (e *env) kubectl(t *testing.T) func(stdin string, args ...string) (string, error) {
	t.Helper()
	program := daemontest.Components(t, "kubectl")["kubectl"]
	return func(stdin string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig=" + e.Kubeconfig, "--cache-dir=" + t.TempDir()}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
		}
		return string(out), err
	}
}

// kubectlTest runs kubectl, which must succeed.
type kubectlTest struct {
	try func(stdin string, args ...string) (string, error)
}

func (k kubectlTest) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := k.try(stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// until waits for an output that matches, as the API server takes up changes of definitions
// a little later.
func (k kubectlTest) until(t *testing.T, want string, args ...string) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		out, err := k.try("", args...)
		if err == nil && !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("kubectl %v: want %s\n%s", args, want, out)
		}
		return err
	})
}

// testKubectl follows the page on CustomResourceDefinitions with kubectl.
// It observes CRD-01, CRD-08, CRD-13, CRD-14, CRD-15, CRD-16, CRD-40, CRD-41, CRD-160, CRD-161, CRD-162, CRD-175 and CRD-188 of
// docs/requirements.md.
// It also observes OLD-57 and OLD-79 of docs/requirements.md.
func (e *env) testKubectl(t *testing.T) {
	k := kubectlTest{e.kubectl(t)}
	k.run(t, "", "apply", "-f", "testdata/crontabs.yaml")
	k.run(t, "", "wait", "--for=condition=Established", "crd/"+cronTabs, "--timeout=60s")
	if out := k.run(t, "", "api-resources", "--namespaced=false", "--api-group=apiextensions.k8s.io", "-o", "name"); out != "customresourcedefinitions.apiextensions.k8s.io\n" {
		t.Errorf("definitions are not cluster-scoped:\n%s", out)
	}
	e.eventually(t, "/apis/stable.example.com/v1/crontabs", http.StatusOK)
	if out := k.run(t, cronObject, "apply", "-f", "-"); out != "crontab.stable.example.com/my-new-cron-object created\n" {
		t.Errorf("apply says %q", out)
	}
	for _, name := range []string{"crontab", "crontabs", "ct", "CronTab", "CRONTABS"} {
		if out := k.run(t, "", "get", name); !regexp.MustCompile(`^NAME +AGE\nmy-new-cron-object +[\dms]+\n$`).MatchString(out) {
			t.Errorf("kubectl get %s prints\n%s", name, out)
		}
	}
	readBack(t, k.run(t, "", "get", "ct", "-o", "yaml"))

	odd := strings.NewReplacer("my-new-cron-object", "odd", "image:", "someRandomField: 42, image:").Replace(cronObject)
	if out, err := k.try(odd, "create", "-f", "-"); err == nil || !strings.Contains(out, `unknown field "spec.someRandomField"`) {
		t.Errorf("kubectl takes an unknown field: %s", out)
	}
	k.run(t, odd, "create", "--validate=false", "-f", "-")
	if out := k.run(t, "", "get", "ct", "odd", "-o", "json"); !strings.Contains(out, "cronSpec") || strings.Contains(out, "someRandomField") {
		t.Errorf("the object is not pruned: %s", out)
	}

	e.merge(t, cronPath, `{"spec": {"names": {"categories": ["all", "schedules"]}}}`)
	for _, category := range []string{"all", "schedules"} {
		k.until(t, `(?m)^(crontab.stable.example.com/)?my-new-cron-object`, "get", category)
	}
	e.merge(t, cronPath, columnsAndScale)
	k.run(t, "", "patch", "ct", "my-new-cron-object", "--type=merge", "-p", `{"spec": {"replicas": 1}}`)
	k.until(t, `^NAME +SPEC +REPLICAS +AGE\nmy-new-cron-object +\* \* \* \* \*/5 +1 +[\dms]+\n`, "get", "ct")
	k.until(t, `^NAME +SPEC +REPLICAS +IMAGE +AGE\nmy-new-cron-object +\* \* \* \* \*/5 +1 +my-awesome-cron-image +`, "get", "ct", "-o", "wide")
	k.until(t, `my-new-cron-object scaled`, "scale", "--replicas=5", "crontabs/my-new-cron-object")
	if out := k.run(t, "", "get", "ct", "my-new-cron-object", "-o", "jsonpath={.spec.replicas}"); out != "5" {
		t.Errorf("kubectl scale has set %q", out)
	}
}

// columnsAndScale gives the definition the documents' columns and the scale subresource.
const columnsAndScale = `{"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
	"additionalPrinterColumns": [{"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
		{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}, {"name": "Image", "type": "string", "priority": 1, "jsonPath": ".spec.image"},
		{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
	"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.labelSelector"}},
	"schema": {"openAPIV3Schema": {"type": "object", "properties": {
		"spec": {"type": "object", "properties": {"cronSpec": {"type": "string"}, "image": {"type": "string"}, "replicas": {"type": "integer"}}},
		"status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "labelSelector": {"type": "string"}}}}}}}]}}`

// readBack checks what the API server and kubectl add to an object.
func readBack(t *testing.T, text string) {
	t.Helper()
	var list struct {
		APIVersion string
		Kind       string
		Items      []struct {
			Metadata struct {
				CreationTimestamp, ResourceVersion, UID string
				Generation                              int
				Annotations                             map[string]string
			}
			Spec map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if list.APIVersion != "v1" || list.Kind != "List" || len(list.Items) != 1 {
		t.Fatalf("not a list of one object:\n%s", text)
	}
	m := list.Items[0].Metadata
	if m.CreationTimestamp == "" || m.ResourceVersion == "" || m.UID == "" || m.Generation != 1 || m.Annotations["kubectl.kubernetes.io/last-applied-configuration"] == "" {
		t.Errorf("metadata is %+v", m)
	}
	if s := list.Items[0].Spec; len(s) != 2 || s["cronSpec"] != "* * * * */5" || s["image"] != "my-awesome-cron-image" {
		t.Errorf("spec is %v", s)
	}
}

// testControllers proves with the controllers of Kubernetes that an autoscaler needs the label
// selector, that a PodDisruptionBudget counts by the scale subresource, and that objects go
// with their namespace.
// It observes API-04, CRD-17, CRD-185, CRD-186, CRD-187 and CRD-188 of docs/requirements.md.
func (e *env) testControllers(t *testing.T) {
	try := e.kubectl(t)
	const objects = `
{apiVersion: v1, kind: Namespace, metadata: {name: docs}}
---
{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: scaled, namespace: docs}, spec: {replicas: 5}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: scaled, namespace: docs},
 spec: {maxReplicas: 7, scaleTargetRef: {apiVersion: stable.example.com/v1, kind: CronTab, name: scaled}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: scaled, namespace: docs}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: scaled}}}}
`
	if _, err := try(objects, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	want := func(want string, args ...string) {
		t.Helper()
		daemontest.Eventually(t, 4*bound, func() error { // kube-controller-manager discovers resources again twice a minute
			if out, err := try("", append(args, "-n", "docs")...); err != nil || out != want {
				return errors.Join(fmt.Errorf("kubectl %v prints %q, want %q", args, out, want), err)
			}
			return nil
		})
	}
	active := []string{"get", "hpa", "scaled", "-o", `jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}`}
	want("InvalidSelector", active...)
	const path = "/apis/stable.example.com/v1/namespaces/docs/crontabs/scaled"
	e.merge(t, path+"/status", `{"status": {"replicas": 4, "labelSelector": "app=scaled"}}`)
	want("FailedGetResourceMetric", active...) // there are no metrics here
	e.merge(t, "/apis/autoscaling/v2/namespaces/docs/horizontalpodautoscalers/scaled", `{"spec": {"maxReplicas": 3}}`)
	want("3", "get", "ct", "scaled", "-o", "jsonpath={.spec.replicas}")

	uid := get[struct{ Metadata struct{ UID string } }](t, e, path, "application/json").Metadata.UID
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: docs, labels: {app: scaled}, ownerReferences: [{apiVersion: stable.example.com/v1, kind: CronTab, name: scaled, controller: true, uid: %s}]},
		spec: {automountServiceAccountToken: false, containers: [{name: c, image: c}]}}`, uid)
	daemontest.Eventually(t, bound, func() error { // until the namespace has its ServiceAccount
		_, err := try(pod, "create", "-f", "-")
		return err
	})
	want("3", "get", "pdb", "scaled", "-o", "jsonpath={.status.expectedPods}")

	if _, err := try("", "delete", "namespace", "docs", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	e.eventually(t, "/api/v1/namespaces/docs", http.StatusNotFound)
	if n := len(e.etcd(t, "stable.example.com/crontabs/docs/")); n != 0 {
		t.Errorf("%d objects are left of the namespace", n)
	}
}

// testDeletion proves that the objects of a definition, and the path, go with the definition, and that a condition says so while
// an object remains.
// It observes CRD-18 and CRD-21 of docs/requirements.md.
func (e *env) testDeletion(t *testing.T) {
	const objects = "/apis/stable.example.com/v1/namespaces/default/crontabs"
	definition := get[struct{ Metadata struct{ Finalizers []string } }](t, e, cronPath, "application/json")
	if n := len(e.etcd(t, "stable.example.com/crontabs/")); n == 0 {
		t.Fatal("there are no objects to delete")
	}
	held := strings.NewReplacer("my-new-cron-object", "held", "metadata: {", "metadata: {finalizers: [example.org/held], ").Replace(cronObject)
	if _, err := e.kubectl(t)(held, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if a := e.do(t, http.MethodDelete, cronPath, nil); a.status != nil {
		t.Fatal(a.status)
	} else if f := append(definition.Metadata.Finalizers, a.object.GetFinalizers()...); !strings.Contains(strings.Join(f, " "), "customresourcecleanup.apiextensions.k8s.io") {
		t.Errorf("the finalizers are %v", f)
	}
	daemontest.Eventually(t, bound, func() error {
		if got := e.condition(t, cronTabs, apiextensionsv1.Terminating); !strings.HasPrefix(got, "True InstanceDeletion") {
			return fmt.Errorf("Terminating is %q", got)
		}
		return nil
	})
	e.merge(t, objects+"/held", `{"metadata": {"finalizers": []}}`)
	e.eventually(t, cronPath, http.StatusNotFound)
	if n := len(e.etcd(t, "stable.example.com/crontabs/")); n != 0 {
		t.Errorf("%d objects are left in etcd", n)
	}
	e.eventually(t, objects, http.StatusNotFound)
	if out, err := e.kubectl(t)("", "get", "crontabs.stable.example.com"); err == nil || !strings.Contains(out, "the server could not find the requested resource") && !strings.Contains(out, "doesn't have a resource type") {
		t.Errorf("kubectl get prints %q", out)
	}
	text, err := yaml.YAMLToJSON(read(t, "crontabs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if a := e.do(t, http.MethodPost, definitionsPath, text); a.status != nil {
		t.Fatal(a.status)
	}
	e.eventually(t, objects, http.StatusOK)
	if items := get[struct{ Items []any }](t, e, objects, "application/json").Items; len(items) != 0 {
		t.Errorf("the definition that was made again has objects: %v", items)
	}
}
