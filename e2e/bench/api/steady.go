// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Bars of the project, printed next to the figures.
const (
	barWrites = 0
	barRSS    = 50 // MiB
)

func (b *bench) kind(version, plural string) dynamic.NamespaceableResourceInterface {
	return b.dynamic.Resource(schema.GroupVersionResource{Group: v1beta1.GroupVersion.Group, Version: version, Resource: plural})
}

// steadyState creates a Bundle and a TunnelPool, waits until the operator has applied them, and
// counts what is written while nothing changes.
func (b *bench) steadyState(ctx context.Context) error {
	bundle := object("v1beta1", "Bundle", "default", nil, map[string]any{})
	bundles := b.kind("v1beta1", "bundles")
	if _, err := bundles.Create(ctx, bundle, metav1.CreateOptions{}); err != nil {
		return err
	}
	pools := b.kind("v1beta1", "tunnelpools").Namespace(metav1.NamespaceSystem)
	if _, err := pools.Create(ctx, object("v1beta1", "TunnelPool", "steady", nil, map[string]any{}), metav1.CreateOptions{}); err != nil {
		return err
	}
	for conditionType, client := range map[string]dynamic.ResourceInterface{v1beta1.BundleReconciled: bundles, v1beta1.PoolAccepted: pools} {
		name := map[string]string{v1beta1.BundleReconciled: "default", v1beta1.PoolAccepted: "steady"}[conditionType]
		if err := b.until(ctx, conditionType+" of "+name, func(ctx context.Context) error { return isTrue(ctx, client, name, conditionType) }); err != nil {
			return err
		}
	}
	select { // rollouts of simulated Pods, and the status that tells of them
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Second):
	}
	before, err := b.writes(ctx)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.steady):
	}
	after, err := b.writes(ctx)
	if err != nil {
		return err
	}
	total, seen := 0.0, []string{}
	for what, n := range after {
		if d := n - before[what]; d > 0 {
			total += d
			seen = append(seen, fmt.Sprintf("%s %.0f", what, d))
		}
	}
	slices.Sort(seen)
	const quiet, memory = "writes per minute with nothing to do, Lease excepted", "RSS of the operator with a Bundle and a pool"
	row(quiet, "%.1f (at most %d) %s", total/b.steady.Minutes(), barWrites, strings.Join(seen, ", "))
	b.goal(quiet, total == barWrites)
	rss, own, err := b.rss(ctx)
	if err != nil {
		return err
	}
	b.goal(memory, rss>>20 <= barRSS)
	row(memory, "%d MiB (at most %d), %d MiB without the program's file", rss>>20, barRSS, own>>20)
	return errors.Join(pools.Delete(ctx, "steady", metav1.DeleteOptions{}), bundles.Delete(ctx, "default", metav1.DeleteOptions{}))
}

func isTrue(ctx context.Context, client dynamic.ResourceInterface, name, conditionType string) error {
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var o struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(o.Status.Conditions, conditionType) {
		return fmt.Errorf("conditions %+v", o.Status.Conditions)
	}
	return nil
}

// others are resources that other programs write while nothing changes: nodes report, and the supervisor renews tokens.
// The operator's own events count nevertheless.
var others = []string{"leases", "nodes", "events", "tokenreviews", "subjectaccessreviews", "serviceaccounts/token"}

// events counts the operator's events.
func (b *bench) events(ctx context.Context) (n float64, err error) {
	list, err := b.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, e := range list.Items {
		if !strings.Contains(e.ReportingController+e.Source.Component, operator.Name) {
			continue
		}
		n += float64(max(e.Count, 1))
		if e.Series != nil {
			n += float64(e.Series.Count)
		}
	}
	return n, nil
}

// writes counts what kube-apiserver has written, by resource.
func (b *bench) writes(ctx context.Context) (map[string]float64, error) {
	text, err := b.rest.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		resource := labels["resource"]
		if sub := labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		if mutates := []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}; !slices.Contains(mutates, labels["verb"]) ||
			slices.Contains(others, resource) || slices.Contains(others, labels["resource"]) || labels["dry_run"] != "" {
			continue
		}
		out[labels["verb"]+" "+resource] += m.GetCounter().GetValue()
	}
	if len(out) == 0 {
		return nil, errors.New("kube-apiserver shows no writes at all")
	}
	out["the operator's events"], err = b.events(ctx)
	return out, err
}

// rss is the resident memory of the operator, and how much of it is its own: the rest are pages of the
// program's file, which the kernel takes back when memory is short.
func (b *bench) rss(ctx context.Context) (all, own int64, err error) {
	report, err := b.supervisor.Status(ctx)
	if err != nil {
		return 0, 0, err
	}
	p, ok := report.Find(operator.Binary)
	if !ok || p.RSSBytes == 0 {
		return 0, 0, errors.New("the supervisor shows no memory of the operator")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, 0, err
	}
	m := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(data)
	if m == nil {
		return 0, 0, errors.New("/proc shows no anonymous memory of the operator")
	}
	own, err = strconv.ParseInt(string(m[1]), 10, 64)
	return p.RSSBytes, own << 10, err
}

// object is one of our kinds.
func object(version, kind, name string, annotations, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.Group + "/" + version, "kind": kind,
		"metadata": map[string]any{"name": name, "annotations": annotations}, "spec": spec,
	}}
}
