// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/e2e/harness/panels"
	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// panelsDir names the directory for the pictures: "make panels" sets it.
const panelsDir = "FAIRLEAD_E2E_PANELS"

const (
	// panelStep is between two points of a graph, and panelRate what rates are taken over.
	panelStep = 2 * time.Second
	panelRate = "15s"
	// readable is how many lines of a panel can be told apart.
	readable = 16
)

// TestPanels draws all dashboards as SVG, from a real Prometheus that scrapes the cluster during calls, failures, and a
// restart of all agents. Each panel has data, and no more lines than can be told apart.
func TestPanels(t *testing.T) {
	testutil.Full(t, "needs a Prometheus")
	promtest.Require(t)
	dir := os.Getenv(panelsDir)
	if dir == "" {
		t.Skipf("%s does not name a directory for pictures: use make panels", panelsDir)
	}
	if !suite.Simulated() {
		t.Skip("the ports to scrape are those of an embedded cluster")
	}
	run(t, "dashboards", 10*time.Minute, step{"traffic and pictures", func(ctx context.Context, t *testing.T) {
		api, apiMetrics := proxyWithMetrics(ctx, t)
		socks, socksMetrics := startSOCKS5(ctx, t)
		p := startPrometheus(ctx, t, promtest.RulesFile(t), map[string]string{proxyJob: apiMetrics, socks5Job: socksMetrics})
		begin := time.Now()
		makeTraffic(ctx, t, api, socks.Host)
		time.Sleep(5 * time.Second) // for the last scrapes
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range monitoring.Dashboards() {
			writeFile(t, filepath.Join(dir, d.UID+".svg"), []byte(p.picture(ctx, t, d, begin, time.Now())))
		}
	}})
}

// picture draws a dashboard.
func (p *prometheus) picture(ctx context.Context, t *testing.T, d monitoring.Dashboard, begin, end time.Time) string {
	t.Helper()
	var data [][][]panels.Series
	for _, row := range d.Rows {
		var ofRow [][]panels.Series
		for _, panel := range row.Panels {
			var series []panels.Series
			for _, q := range panel.Queries {
				more, err := p.series(ctx, q, begin, end)
				if err != nil {
					t.Errorf("%s, %s: %s: %v", d.UID, panel.Title, q.Expr, err)
				}
				series = append(series, more...)
			}
			if len(series) == 0 || len(series) > readable {
				t.Errorf("%s, %s: %d lines, want 1 to %d", d.UID, panel.Title, len(series), readable)
			}
			panels.Sort(series)
			ofRow = append(ofRow, series)
		}
		data = append(data, ofRow)
	}
	return panels.Dashboard(d, data, panels.Range{From: seconds(begin), To: seconds(end), Step: panelStep.Seconds()})
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// series evaluates a query over a time.
func (p *prometheus) series(ctx context.Context, q monitoring.Query, begin, end time.Time) (all []panels.Series, err error) {
	var matrix struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any // seconds since 1970, and the value as a text
		}
	}
	err = p.Get(ctx, &matrix, "query_range", "query", strings.ReplaceAll(q.Expr, monitoring.RateInterval, panelRate),
		"start", strconv.FormatInt(begin.Unix(), 10), "end", strconv.FormatInt(end.Unix(), 10), "step", panelStep.String())
	for _, r := range matrix.Result {
		s := panels.Series{Legend: panels.Legend(q.Legend, r.Metric)}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) { // which is a quantile of nothing
				s.Points = append(s.Points, panels.Point{At: at, Value: value})
			}
		}
		if len(s.Points) > 0 {
			all = append(all, s)
		}
	}
	return all, err
}

// makeTraffic takes some minutes: dials, streams and requests all the time, and one after the other calls that fail, Pods
// for both schedulers and a restart of all agents.
func makeTraffic(ctx context.Context, t *testing.T, api, socks string) {
	t.Helper()
	kubectl, err := suite.BuildKubectl(ctx)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := harness.StartStreams(ctx, streamsOfEach, suite.LongStreams())
	if err != nil {
		t.Fatal(err)
	}
	load := harness.StartLoad(ctx, 3, dial)
	useWaysIn(ctx, t, api, socks)
	time.Sleep(20 * time.Second) // traffic without faults, for the pictures
	causeFailures(ctx, t)
	for range 3 {
		failCalls(ctx, t, kubectl)
		time.Sleep(3 * time.Second) // between points of the pictures
	}
	pendingPod("my-scheduler")(ctx, t)
	for _, scheduler := range []string{"my-scheduler", corev1.DefaultSchedulerName, "my-scheduler"} {
		schedulePods(ctx, t, scheduler, 25)
		time.Sleep(10 * time.Second) // between the bursts
	}
	if err := suite.Agents().Restart(ctx); err != nil {
		t.Error(err)
	}
	time.Sleep(30 * time.Second) // traffic after the restart
	t.Logf("%s\n%s", load.Stop(), streams.Stop())
}

// useWaysIn uses "fairlead proxy" and "fairlead socks5" until the test ends.
func useWaysIn(ctx context.Context, t *testing.T, api, socks string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var using sync.WaitGroup
	t.Cleanup(func() { cancel(); using.Wait() })
	using.Go(func() {
		for ctx.Err() == nil {
			if err := useProxy(ctx, api); err != nil && ctx.Err() == nil {
				t.Errorf("fairlead proxy: %v", err)
			}
			time.Sleep(time.Second) // one use a second
		}
	})
	using.Go(func() {
		for ctx.Err() == nil {
			for _, password := range []string{"right", "right", "right", "wrong"} {
				if held, err := connectBySOCKS5(ctx, socks, password); err == nil {
					time.Sleep(2 * time.Second) // how long a connection lasts
					_ = held.Close()
				}
			}
		}
	})
}

// schedulePods creates Pods for a scheduler, and waits until they have nodes.
func schedulePods(ctx context.Context, t *testing.T, scheduler string, n int) {
	t.Helper()
	pods := suite.Client.CoreV1().Pods(harness.Namespace)
	label := fmt.Sprintf("burst-%d", time.Now().UnixNano())
	for range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "burst-", Labels: map[string]string{"burst": label}}, Spec: corev1.PodSpec{
			SchedulerName: scheduler, Containers: []corev1.Container{{Name: "none", Image: "none"}},
		}}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mine := metav1.ListOptions{LabelSelector: "burst=" + label}
	atEnd(ctx, t, func(ctx context.Context) {
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, mine); err != nil {
			t.Error(err)
		}
	})
	if err := harness.Wait(ctx, time.Minute, "nodes for all Pods", func(ctx context.Context) error {
		list, err := pods.List(ctx, mine)
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == "" {
				return fmt.Errorf("Pod %s has none", p.Name)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
