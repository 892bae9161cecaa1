// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// prometheusProgram names the program that TestMonitoring starts. It takes minutes to compile, so that the test does not
// build it.
const prometheusProgram = "FAIRLEAD_E2E_PROMETHEUS"

// TestMonitoring: a real Prometheus that scrapes the cluster, with deploy/monitoring/rules.yaml, finds each series and label
// that an alert or dashboard uses, evaluates each rule without an error, and sees the fault when all agents stop.
func TestMonitoring(t *testing.T) {
	if os.Getenv(prometheusProgram) == "" {
		t.Skipf("%s does not name a prometheus program: make prometheus builds one", prometheusProgram)
	}
	if !suite.Simulated() {
		t.Skip("the ports to scrape are those of an embedded cluster")
	}
	var p *prometheus
	run(t, "alerts and dashboards", 4*time.Minute,
		step{"faults, so that metrics of failures have series", causeFailures},
		step{"every series exists", func(ctx context.Context, t *testing.T) {
			p = startPrometheus(ctx, t)
			for _, expr := range monitoring.Expressions("1m") {
				err := harness.Wait(ctx, time.Minute, "series", func(ctx context.Context) error { return p.checkSeries(ctx, expr) })
				if err != nil {
					t.Errorf("%s\n\t%v", expr, err)
				}
			}
			if err := p.checkRules(ctx); err != nil {
				t.Error(err)
			}
		}},
		step{"no agents", func(ctx context.Context, t *testing.T) {
			p = startPrometheus(ctx, t)
			atEnd(ctx, t, func(ctx context.Context) {
				if err := suite.Agents().Start(ctx); err != nil {
					t.Error(err)
				}
			})
			if state, err := p.state(ctx, "KonnectivityNoAgents"); err != nil || state != "inactive" {
				t.Errorf("with agents: %q, %v", state, err)
			}
			if err := suite.Agents().Stop(ctx); err != nil {
				t.Fatal(err)
			}
			if err := harness.Wait(ctx, time.Minute, "the alert", func(ctx context.Context) error {
				if state, err := p.state(ctx, "KonnectivityNoAgents"); err != nil || state == "inactive" {
					return fmt.Errorf("it is %q: %w", state, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}},
	)
}

// unreachable has a Service without backends behind everything that kube-apiserver calls by the tunnel.
const unreachable = `
apiVersion: v1
kind: Service
metadata: {name: gone, namespace: default}
spec: {ports: [{port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: gone, namespace: default, labels: {kubernetes.io/service-name: gone}}
addressType: IPv4
ports: [{port: 1, protocol: TCP}]
endpoints: [{addresses: ["192.0.2.1"], conditions: {ready: true}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.gone.fairlead.test}
spec: {group: gone.fairlead.test, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {name: gone, namespace: default}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gone.fairlead.test}
webhooks:
- name: gone.fairlead.test
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  objectSelector: {matchLabels: {fairlead.test/refuse: "true"}}
  clientConfig: {service: {name: gone, namespace: default}}
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.gone.fairlead.dev}
spec:
  group: gone.fairlead.dev
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: gone, namespace: default}}}
`

// causeFailures makes calls of kube-apiserver fail in each way that an alert is about, and has both schedulers work.
func causeFailures(ctx context.Context, t *testing.T) {
	kubectl, err := suite.BuildKubectl(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must := func(stdin string, args ...string) {
		t.Helper()
		if out, err := suite.Kubectl(ctx, kubectl, stdin, args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	atEnd(ctx, t, func(ctx context.Context) {
		if out, err := suite.Kubectl(ctx, kubectl, unreachable, "delete", "--ignore-not-found", "--wait=false", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	must(unreachable, "apply", "-f", "-")
	must("", "wait", "--for=condition=Established", "crd/things.gone.fairlead.dev", "--timeout=30s")
	if err := harness.Wait(ctx, 30*time.Second, "the new kind", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, kubectl, "{apiVersion: gone.fairlead.dev/v1, kind: Thing, metadata: {name: x, namespace: default}}", "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mustFail := func(stdin string, args ...string) {
		t.Helper()
		if out, err := suite.Kubectl(ctx, kubectl, stdin, args...); err == nil {
			t.Errorf("kubectl %v succeeded\n%s", args, out)
		}
	}
	mustFail("", "get", "--raw", "/apis/gone.fairlead.dev/v2/namespaces/default/things/x", "--request-timeout=8s")
	mustFail("{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, namespace: default, labels: {fairlead.test/refuse: 'true'}}}", "create", "-f", "-")
	if r, err := suite.Try(ctx, "verify", "--context", suite.Context(), "--only", "scheduler-three-pods"); err != nil || r.Code != 0 {
		t.Errorf("scheduling: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
}
