// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// TestMonitoring: a real Prometheus that scrapes the cluster, with deploy/monitoring/rules.yaml, finds each series and label
// that an alert or dashboard uses, evaluates each rule
// without an error, and fires no alert in a healthy cluster.
func TestMonitoring(t *testing.T) {
	testutil.Full(t, "needs a Prometheus")
	promtest.Require(t)
	if !suite.Simulated() {
		t.Skip("the ports to scrape are those of an embedded cluster")
	}
	run(t, "alerts and dashboards", 5*time.Minute+silence(t),
		step{"faults, so that metrics of failures have series", causeFailures},
		step{"every series exists", func(ctx context.Context, t *testing.T) {
			requestingPod(ctx, t, "my-scheduler", nil)
			p := scrapeBy(ctx, t, promtest.RulesFile(t), ofCluster(scrapeConfig(ctx, t, nil), "one"))
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
		step{"silence", func(ctx context.Context, t *testing.T) {
			p := startPrometheus(ctx, t, silentRules(t), nil)
			if err := harness.Wait(ctx, 30*time.Second, "all alerts to be silent after the first scrapes", p.silent); err != nil {
				t.Fatal(err)
			}
			p.wantSilence(ctx, t, silence(t))
		}},
	)
}

// silence is how long a healthy cluster must cause no alert. The test starts another Prometheus for that, so faults of before do
// not count.
func silence(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv("FAIRLEAD_E2E_SILENCE")
	if v == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("FAIRLEAD_E2E_SILENCE: %v", err)
	}
	return d
}

// silentRules are the alerts as they are installed or, where the test has less time than these wait, with a wait that is
// longer than a few scrapes.
func silentRules(t *testing.T) string {
	t.Helper()
	if os.Getenv("FAIRLEAD_E2E_SILENCE") == "" {
		return promtest.QuickRules(t, 5*time.Second)
	}
	return promtest.RulesFile(t)
}

// wantSilence checks that no alert fires for a while.
func (p *prometheus) wantSilence(ctx context.Context, t *testing.T, lasting time.Duration) {
	t.Helper()
	for end := time.Now().Add(lasting); time.Now().Before(end); time.Sleep(time.Second) {
		if err := p.silent(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// silent fails if an alert fires.
func (p *prometheus) silent(ctx context.Context) error {
	rules, err := p.Rules(ctx)
	for _, r := range rules {
		if r.State == "firing" {
			err = errors.Join(err, fmt.Errorf("%s fires in a healthy cluster", r.Name))
		}
	}
	return err
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
	failCalls(ctx, t, kubectl)
	if r, err := suite.Try(ctx, "verify", "--context", suite.Context(), "--only", "scheduler-three-pods"); err != nil || r.Code != 0 {
		t.Errorf("scheduling: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
}

// failCalls calls what causeFailures has broken.
func failCalls(ctx context.Context, t *testing.T, kubectl string) {
	t.Helper()
	mustFail := func(stdin string, args ...string) {
		t.Helper()
		if out, err := suite.Kubectl(ctx, kubectl, stdin, args...); err == nil {
			t.Errorf("kubectl %v succeeded\n%s", args, out)
		}
	}
	mustFail("", "get", "--raw", "/apis/gone.fairlead.dev/v2/namespaces/default/things/x", "--request-timeout=8s")
	mustFail("{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, namespace: default, labels: {fairlead.test/refuse: 'true'}}}", "create", "-f", "-")
}
