// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

var (
	labelUse   = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	metricName = regexp.MustCompile(`\b(konnectivity_network_proxy_\w+|fairlead_tunnel_\w+)`)
)

// TestAlertsAreWhole: each alert has a name of its own, a fault with what it reports, a healthy state and a page of
// runbooks; its summary is a sentence and uses only labels that the fault's alerts have.
func TestAlertsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range monitoring.Alerts() {
		if seen[a.Name] {
			t.Errorf("%s is there twice", a.Name)
		}
		seen[a.Name] = true
		if len(a.Fault) == 0 || len(a.Health) == 0 || len(a.Fires) == 0 {
			t.Errorf("%s: %d series of the fault, %d of health, %d alerts", a.Name, len(a.Fault), len(a.Health), len(a.Fires))
		}
		if !strings.HasSuffix(a.Summary, ".") || a.Severity != monitoring.Critical && a.Severity != monitoring.Warning {
			t.Errorf("%s: severity %q, summary %q", a.Name, a.Severity, a.Summary)
		}
		for _, use := range labelUse.FindAllStringSubmatch(a.Summary, -1) {
			for _, labels := range a.Fires {
				if labels[use[1]] == "" {
					t.Errorf("%s: the summary uses label %s, which %v does not have", a.Name, use[1], labels)
				}
			}
		}
		page, err := os.ReadFile("../../docs/runbooks/" + a.Name + ".md")
		if err != nil {
			t.Errorf("%s has no runbook: %v", a.Name, err)
			continue
		}
		for _, want := range []string{"# " + a.Name + "\n", "\n## Effect\n", "\n## Find the cause\n", "\n## Fix\n", "```sh\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("docs/runbooks/%s.md lacks %q", a.Name, want)
			}
		}
	}
	if len(seen) < 12 {
		t.Errorf("only %d alerts", len(seen))
	}
	pages, err := os.ReadDir("../../docs/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if name := strings.TrimSuffix(p.Name(), ".md"); name != "README" && !seen[name] {
			t.Errorf("docs/runbooks/%s belongs to no alert", p.Name())
		}
	}
}

// TestRunbooksRenewAll: a runbook that renews the tunnel's certificates renews the one that the server shows by default, too. That is kubeadm's.
func TestRunbooksRenewAll(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nsudo fairlead certs renew\n") {
			found++
			if !strings.Contains(string(text), "\nsudo kubeadm certs renew apiserver\n") {
				t.Errorf("%s does not renew apiserver.crt", page)
			}
		}
	}
	if found == 0 {
		t.Error("no runbook renews certificates")
	}
}

// TestTunnelMetricsExist: each metric of the tunnel in alerts and dashboards is one that the programs have.
func TestTunnelMetricsExist(t *testing.T) {
	var all strings.Builder
	server.NewMetrics().Registry.Write(&all)
	agent.NewMetrics().Registry.Write(&all)
	found := 0
	for _, expr := range monitoring.Expressions("5m") {
		for _, name := range metricName.FindAllString(expr, -1) {
			found++
			if !strings.Contains(all.String(), "# TYPE "+strings.TrimSuffix(name, "_bucket")+" ") {
				t.Errorf("no program has %s, in %s", name, expr)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d uses of metrics", found)
	}
}

// TestOwnMetrics: the alerts that are said to be for Fairlead's programs alone are those without a metric of upstream's.
func TestOwnMetrics(t *testing.T) {
	upstreams := []string{"konnectivity_network_proxy_", "apiserver_", "aggregator_", "scheduler_", "leader_election_", "process_"}
	for _, a := range monitoring.Alerts() {
		upstream := slices.ContainsFunc(upstreams, func(prefix string) bool { return regexp.MustCompile(`\b` + prefix).MatchString(a.Expr) })
		if upstream == a.OwnMetrics {
			t.Errorf("%s: OwnMetrics is %v, expression %s", a.Name, a.OwnMetrics, a.Expr)
		}
	}
}

var described = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// TestSOCKS5MetricsExist: each metric of "fairlead socks5" in alerts and dashboards is one that it has, with the labels
// that an expression groups by.
func TestSOCKS5MetricsExist(t *testing.T) {
	registry := prometheus.NewRegistry()
	socks5.NewMetrics(registry)
	descriptions := make(chan *prometheus.Desc, 100)
	registry.Describe(descriptions)
	close(descriptions)
	labels := map[string]string{}
	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s is described in another way", d)
		}
		labels[m[1]] = m[2]
	}
	use := regexp.MustCompile(`\bfairlead_socks5_\w+`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	found := 0
	for _, expr := range monitoring.Expressions("5m") {
		for _, name := range use.FindAllString(expr, -1) {
			found++
			have, ok := labels[strings.TrimSuffix(name, "_bucket")]
			if !ok {
				t.Errorf("fairlead socks5 has no %s", name)
			}
			for _, group := range by.FindAllStringSubmatch(expr, -1) {
				for label := range strings.SplitSeq(group[1], ", ") {
					if !slices.Contains([]string{"cluster", "instance", "job", "le"}, label) && !slices.Contains(strings.Split(have, ","), label) {
						t.Errorf("%s has no label %s, but %s", name, label, have)
					}
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("found only %d uses", found)
	}
}
