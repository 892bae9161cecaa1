// SPDX-License-Identifier: Apache-2.0

// Command monitoring renders deploy/monitoring from pkg/monitoring: rules for Prometheus and the Prometheus Operator, the
// rules' tests for promtool, and dashboards for Grafana. Run it in deploy/tools:
//
//	go run ./monitoring [-check]
//
// With -check it writes nothing and fails if a file is out of date.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a file is out of date")
	dir := flag.String("dir", "../monitoring", "directory of the rendered files")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	files, err := render()
	if err != nil {
		return err
	}
	if err := leftover(dir, files, check); err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if check {
			if have, err := os.ReadFile(path); err != nil || string(have) != string(data) {
				return fmt.Errorf("%s is out of date: run make manifests", path)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// leftover removes dashboards that are no longer rendered, or finds them with check.
func leftover(dir string, files map[string][]byte, check bool) error {
	have, err := filepath.Glob(filepath.Join(dir, "dashboards", "*.json"))
	if err != nil {
		return err
	}
	for _, path := range have {
		if _, ok := files[filepath.Join("dashboards", filepath.Base(path))]; ok {
			continue
		}
		if check {
			return fmt.Errorf("%s is not rendered any more: run make manifests", path)
		}
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// render returns the content of all files by their path below deploy/monitoring.
func render() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, content := range map[string]func() ([]byte, error){
		"rules.yaml": monitoring.Rules, "prometheusrule.yaml": monitoring.PrometheusRule, "rules_test.yaml": monitoring.RuleTests,
	} {
		data, err := content()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = data
	}
	for _, d := range monitoring.Dashboards() {
		data, err := grafana(d)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
		files[filepath.Join("dashboards", d.UID+".json")] = data
	}
	return files, nil
}
