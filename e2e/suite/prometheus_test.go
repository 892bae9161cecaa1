// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// prometheus is a running Prometheus that scrapes the suite's cluster.
type prometheus struct{ *promtest.Server }

// startPrometheus has Prometheus scrape the cluster each second, and further targets by the names of their jobs.
func startPrometheus(ctx context.Context, t *testing.T, rules string, more map[string]string) *prometheus {
	t.Helper()
	return scrapeBy(ctx, t, rules, scrapeConfig(ctx, t, more))
}

// ofCluster gives the series of all jobs a label, as a Prometheus of several clusters has to.
func ofCluster(jobs []promtest.Object, cluster string) []promtest.Object {
	for _, job := range jobs {
		for _, config := range job["static_configs"].([]promtest.Object) {
			config["labels"] = promtest.Object{"cluster": cluster}
		}
	}
	return jobs
}

func scrapeBy(ctx context.Context, t *testing.T, rules string, jobs []promtest.Object) *prometheus {
	t.Helper()
	p := &prometheus{promtest.Start(t, rules, jobs)}
	if err := harness.Wait(ctx, time.Minute, "all targets to be up", func(ctx context.Context) error { return p.TargetsUp(ctx, 8) }); err != nil {
		t.Fatal(err)
	}
	return p
}

// freeAddress is an address of this machine on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", daemontest.Ports(t, 1)[0])
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// portsOf are the ports of an embedded cluster's programs.
func portsOf(t *testing.T) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(suite.StateDir(suite.Name), "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct{ Ports map[string]int }
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	return state.Ports
}

// scrapeConfig names the ports of the cluster's programs, and of a "fairlead proxy" and a "fairlead socks5" that have answered and
// refused something, unless more has one.
func scrapeConfig(ctx context.Context, t *testing.T, more map[string]string) []promtest.Object {
	t.Helper()
	dir := t.TempDir()
	ports := portsOf(t)
	writeFile(t, filepath.Join(dir, "tls.crt"), suite.Config.CertData)
	writeFile(t, filepath.Join(dir, "tls.key"), suite.Config.KeyData)
	type object = promtest.Object
	var jobs []object
	scrape := func(job, scheme string, names func(string) bool) {
		var targets []string
		for name, port := range ports {
			if names(name) {
				targets = append(targets, fmt.Sprintf("127.0.0.1:%d", port))
			}
		}
		if len(targets) == 0 {
			t.Fatalf("the cluster has no port for %s: %v", job, ports)
		}
		jobs = append(jobs, object{"job_name": job, "scheme": scheme, "static_configs": []object{{"targets": targets}},
			"tls_config": object{"insecure_skip_verify": true, "cert_file": filepath.Join(dir, "tls.crt"), "key_file": filepath.Join(dir, "tls.key")}})
	}
	is := func(want string) func(string) bool { return func(name string) bool { return name == want } }
	scrape("konnectivity-server", "http", is("konnectivity-server-health"))
	scrape("konnectivity-agent", "http", func(name string) bool {
		return strings.HasPrefix(name, "konnectivity-agent-") && strings.HasSuffix(name, "-health")
	})
	scrape("apiserver", "https", is("kube-apiserver"))
	scrape("kube-scheduler", "https", is("kube-scheduler"))
	scrape("second-scheduler", "https", func(name string) bool { return strings.HasPrefix(name, "second-scheduler-") })
	scrape("kube-scheduler-resources", "https", is("kube-scheduler"))
	jobs[len(jobs)-1]["metrics_path"] = "/metrics/resources"
	if more[proxyJob] == "" {
		address, metrics := proxyWithMetrics(ctx, t)
		if err := useProxy(ctx, address); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, object{"job_name": proxyJob, "static_configs": []object{{"targets": []string{metrics}}}})
	}
	if more[socks5Job] == "" {
		proxy, metrics := startSOCKS5(ctx, t)
		useSOCKS5(ctx, t, proxy.Host)
		jobs = append(jobs, object{"job_name": socks5Job, "static_configs": []object{{"targets": []string{metrics}}}})
	}
	for job, target := range more {
		jobs = append(jobs, object{"job_name": job, "static_configs": []object{{"targets": []string{target}}}})
	}
	return jobs
}

// proxyJob is the job of a "fairlead proxy", socks5Job that of a "fairlead socks5".
const (
	proxyJob  = "fairlead-proxy"
	socks5Job = "fairlead-socks5"
)

// useSOCKS5 has a proxy open a connection and refuse a password.
func useSOCKS5(ctx context.Context, t *testing.T, proxy string) {
	t.Helper()
	if held, err := connectBySOCKS5(ctx, proxy, "wrong"); err == nil {
		_ = held.Close()
		t.Fatal("fairlead socks5 accepts a wrong password")
	}
	if err := holdPlace(ctx, t, proxy).Close(); err != nil {
		t.Fatal(err)
	}
}

// proxyWithMetrics returns the addresses of a proxy and of its metrics.
func proxyWithMetrics(ctx context.Context, t *testing.T) (address, metrics string) {
	t.Helper()
	metrics = freeAddress(t)
	return startProxy(ctx, t, "--port", "0", "--metrics-address", metrics), metrics
}

// useProxy has a proxy answer one request and refuse another one.
func useProxy(ctx context.Context, address string) error {
	for _, path := range []string{"/api", "/api/v1/namespaces/default/pods/x/exec"} { // the default filter refuses exec
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return nil
}

// mayBeEmpty are metrics that have no series before an agent has a client certificate, loses its server, or meets a server that breaks the
// protocol. The agents still declare them.
var mayBeEmpty = map[string]bool{
	"fairlead_tunnel_agent_certificate_expiration_timestamp_seconds": true,
	"fairlead_tunnel_agent_connect_failures_total":                   true,
	"fairlead_tunnel_agent_violations_total":                         true,
}

// checkSeries checks that the metrics of an expression exist, with the labels that it matches and groups by.
func (p *prometheus) checkSeries(ctx context.Context, expr string) error {
	return p.CheckSelectors(ctx, expr, func(metric string) bool { return mayBeEmpty[metric] }, nil)
}

// checkRules checks that Prometheus has evaluated each rule without an error.
func (p *prometheus) checkRules(ctx context.Context) error {
	return harness.Wait(ctx, 30*time.Second, "the rules", func(ctx context.Context) error {
		rules, err := p.Rules(ctx)
		if err == nil && len(rules) != len(monitoring.Alerts()) {
			err = fmt.Errorf("%d rules, want %d", len(rules), len(monitoring.Alerts()))
		}
		for _, r := range rules {
			if r.Health != "ok" {
				err = errors.Join(err, fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError))
			}
		}
		return err
	})
}
