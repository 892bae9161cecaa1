// SPDX-License-Identifier: Apache-2.0

package promtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// RulesFile returns the absolute path of the alerts as they are installed, for a test two directories below the module's.
func RulesFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../deploy/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ImpatientRules writes the alerts so that each fires as soon as its expression has a value.
func ImpatientRules(t *testing.T) string { t.Helper(); return rulesWaiting(t, 0) }

// QuickRules writes the alerts so that each that waits fires when its expression has had a value for a while. One scrape
// that fails makes none of them fire.
func QuickRules(t *testing.T, wait time.Duration) string { t.Helper(); return rulesWaiting(t, wait) }

// rulesWaiting writes the alerts with the same wait for all that have one.
func rulesWaiting(t *testing.T, wait time.Duration) string {
	t.Helper()
	data, err := os.ReadFile(RulesFile(t))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(data, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if _, waits := r["for"]; waits {
				r["for"] = wait.String()
			}
		}
	}
	if data, err = yaml.Marshal(rules); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Fault is a real fault, and the alerts that it causes.
type Fault struct {
	Name   string
	Cause  func(ctx context.Context, t *testing.T)
	Again  func(ctx context.Context, t *testing.T) // called until all alerts fire
	Alerts []string
}

// Try causes a fault and waits until its alerts fire, which did not before.
func (s *Server) Try(ctx context.Context, t *testing.T, f Fault) {
	t.Helper()
	for _, alert := range f.Alerts { // an earlier fault may have caused it for a moment
		if err := harness.Wait(ctx, time.Minute, alert+" to be silent before the fault", func(ctx context.Context) error {
			if state, err := s.State(ctx, alert); err != nil || state != "inactive" {
				return fmt.Errorf("it is %q: %w", state, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if f.Cause != nil {
		f.Cause(ctx, t)
	}
	if err := harness.Wait(ctx, 90*time.Second, "the alerts to fire", func(ctx context.Context) error {
		if f.Again != nil {
			f.Again(ctx, t)
		}
		var missing []string
		for _, alert := range f.Alerts {
			if state, err := s.State(ctx, alert); err != nil || state != "firing" {
				missing = append(missing, fmt.Sprintf("%s is %q (%v)", alert, state, err))
			}
		}
		if len(missing) > 0 {
			return errors.New(strings.Join(missing, ", "))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
