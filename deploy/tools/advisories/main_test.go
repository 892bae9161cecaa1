// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
)

func parse(t *testing.T, text string) *modfile.File {
	t.Helper()
	mod, err := modfile.Parse("go.mod", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

func TestCheckVersions(t *testing.T) {
	l := list{Advisories: []advisory{{Module: "example.com/a", Fixed: "v0.56.0", IDs: []string{"CVE-1"}}}}
	for name, tc := range map[string]struct {
		mod  string
		want bool
	}{
		"older":             {"module m\nrequire example.com/a v0.9.0\n", true},
		"pseudo-version":    {"module m\nrequire example.com/a v0.56.0-0.20260101000000-abcdefabcdef\n", true},
		"fixed":             {"module m\nrequire example.com/a v0.56.0\n", false},
		"newer":             {"module m\nrequire example.com/a v0.100.0\n", false},
		"not required":      {"module m\nrequire example.com/ab v0.1.0\n", false},
		"indirect":          {"module m\nrequire example.com/a v0.1.0 // indirect\n", true},
		"replaced by older": {"module m\nrequire example.com/a v0.57.0\nreplace example.com/a => example.com/a v0.5.0\n", true},
		"replaced by fixed": {"module m\nrequire example.com/a v0.1.0\nreplace example.com/a => example.com/a v0.57.0\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkVersions(l, parse(t, tc.mod))
			if (err != nil) != tc.want {
				t.Fatalf("got %v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), "example.com/a v") || !strings.Contains(err.Error(), "CVE-1") || !strings.Contains(err.Error(), "v0.56.0")) {
				t.Errorf("the error does not name module, advisory and fix: %v", err)
			}
		})
	}
}

func TestCheckAge(t *testing.T) {
	l := list{Read: "2026-11-01"}
	day := func(s string) time.Time {
		d, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if err := checkAge(l, "f", day("2026-12-01")); err != nil {
		t.Errorf("after 30 days: %v", err)
	}
	if err := checkAge(l, "f", day("2026-12-02")); err == nil {
		t.Error("a list of 31 days passes")
	}
	if err := checkAge(list{Read: "soon"}, "f", day("2026-12-02")); err == nil {
		t.Error("a list without a date passes")
	}
}

func TestCheckGo(t *testing.T) {
	mod := parse(t, "module m\ngo 1.26.2\ntoolchain go1.26.11\n")
	for running, older := range map[string]bool{
		"go1.26.8": true, "go1.26.11": false, "go1.26.11 X:nocoverageredesign": false, "go1.27": false, "go1.27rc1": false, "go1.26rc2": true, "go1.25.20": true,
	} {
		if err := checkGo(mod, running); (err != nil) != older {
			t.Errorf("%s: %v", running, err)
		}
	}
	if err := checkGo(parse(t, "module m\ngo 1.26.2\n"), "go1.20"); err != nil {
		t.Errorf("without a toolchain line: %v", err)
	}
}

func TestReadList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.yaml")
	for _, text := range []string{
		"", "read: 2026-11-01\n", "advisories: [{module: a, fixed: 1.2.3, ids: [x]}]\n", "advisories: [{module: a, fixed: v1.2.3}]\n",
		"advisories: [{module: a, fixd: v1.2.3, ids: [x]}]\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readList(file); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if l, err := readList("../../advisories.yaml"); err != nil || len(l.Advisories) == 0 {
		t.Errorf("the list of the repository: %v", err)
	}
}
