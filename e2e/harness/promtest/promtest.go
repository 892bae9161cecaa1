// SPDX-License-Identifier: Apache-2.0

// Package promtest runs a real Prometheus for tests of alerts and dashboards. Start at [Start].
package promtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// Program names the Prometheus that tests start. It takes minutes to compile, so that tests do not build it.
const Program = "FAIRLEAD_E2E_PROMETHEUS"

// Require skips a test without a Prometheus.
func Require(t *testing.T) {
	t.Helper()
	switch {
	case os.Getenv(Program) != "":
	case os.Getenv("CI") != "": // a skipped test proves nothing
		t.Fatalf("%s does not name a prometheus program: make prometheus builds one", Program)
	default:
		t.Skipf("%s does not name a prometheus program: make prometheus builds one", Program)
	}
}

// Object is a part of Prometheus' configuration.
type Object = map[string]any

// Server is a running Prometheus.
type Server struct{ url string }

// Start runs Prometheus with a file of alerts, which scrapes the jobs and evaluates the alerts each second. It ends with the test.
func Start(t *testing.T, rules string, jobs []Object) *Server {
	t.Helper()
	dir := t.TempDir()
	config, err := yaml.Marshal(Object{"global": Object{"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}, "rule_files": []string{rules}, "scrape_configs": jobs})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", daemontest.Ports(t, 1)[0])
	cmd := exec.Command(os.Getenv(Program), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("Prometheus:\n%s", text)
		}
	})
	return &Server{"http://" + address}
}

// Get reads "data" of an answer of Prometheus' API.
func (s *Server) Get(ctx context.Context, into any, path string, params ...string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	q := req.URL.Query()
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	req.URL.RawQuery = q.Encode()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %s %s (%w)", path, answer.Status, answer.Error, err)
	}
	return nil
}

// TargetsUp fails if fewer than n targets are scraped, or one of them cannot be.
func (s *Server) TargetsUp(ctx context.Context, n int) error {
	var targets struct {
		ActiveTargets []struct{ ScrapeURL, Health, LastError string }
	}
	if err := s.Get(ctx, &targets, "targets"); err != nil {
		return err
	}
	if len(targets.ActiveTargets) < n {
		return fmt.Errorf("%d targets, want at least %d", len(targets.ActiveTargets), n)
	}
	for _, target := range targets.ActiveTargets {
		if target.Health != "up" {
			return fmt.Errorf("%s is %s: %s", target.ScrapeURL, target.Health, target.LastError)
		}
	}
	return nil
}

// Rule is the state of an alert: inactive, pending or firing.
type Rule struct{ Name, Health, LastError, State string }

// Rules returns the state of all alerts.
func (s *Server) Rules(ctx context.Context) (all []Rule, err error) {
	var groups struct{ Groups []struct{ Rules []Rule } }
	err = s.Get(ctx, &groups, "rules")
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// State returns the state of an alert.
func (s *Server) State(ctx context.Context, alert string) (string, error) {
	rules, err := s.Rules(ctx)
	for _, r := range rules {
		if r.Name == alert {
			return r.State, err
		}
	}
	return "", errors.Join(err, fmt.Errorf("there is no rule %s", alert))
}
