// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// checkReport is the part of fairlead check's report that the tests read.
type checkReport struct {
	Counts map[string]int `json:"counts"`
	Checks []struct {
		ID, Status, Reason string
		Findings           []struct{ Object, Message, Fix string }
	} `json:"checks"`
}

func runCheck(ctx context.Context, t *testing.T, code int, args ...string) checkReport {
	t.Helper()
	r, err := suite.Try(ctx, append([]string{"check", "--context", suite.Context(), "-o", "json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var out checkReport
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil || r.Code != code {
		t.Fatalf("exit code %d, want %d (%v):\n%s%s", r.Code, code, err, r.Stdout, r.Stderr)
	}
	return out
}

// leaderShown finds the leader in the output of status, where a long name is on a line of its own.
var leaderShown = regexp.MustCompile(`(?m)\bleader\s+\S`)

// A healthy cluster fails no check. Without agents, exactly the checks about agents fail, in every format with the same exit code, and those that
// need agents say so. Status says the same, and answers while the tunnel is down.
func TestCheckAndStatus(t *testing.T) {
	run(t, "fairlead check and status", 3*time.Minute,
		step{"a healthy cluster fails no check", func(ctx context.Context, t *testing.T) {
			out := runCheck(ctx, t, 0)
			if out.Counts["failed"] > 0 || out.Counts["unknown"] > 0 || out.Counts["ok"] < 40 {
				t.Errorf("got %+v", out)
			}
			if out, err := suite.Must(ctx, "status", "--context", suite.Context()); err != nil || !strings.Contains(out, "agents 2/2 ready") || !leaderShown.MatchString(out) {
				t.Errorf("status: %v\n%s", err, out)
			}
		}},
		step{"without agents, these checks fail", func(ctx context.Context, t *testing.T) {
			if !suite.Simulated() {
				t.Skip("agents of kind are a DaemonSet, whose Pods the tests of agents stop")
			}
			agents := suite.Agents()
			atEnd(ctx, t, func(ctx context.Context) {
				if err := agents.Start(ctx); err != nil {
					t.Error(err)
				}
			})
			if err := agents.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			bad := map[string]string{}
			for _, c := range runCheck(ctx, t, 1).Checks {
				if c.Status == "failed" || c.Status == "unknown" {
					bad[c.ID] = c.Status
				}
				if c.ID == "FL-KON-005" && !strings.Contains(c.Reason, "FL-KON-003") {
					t.Errorf("FL-KON-005 is %s: %s", c.Status, c.Reason)
				}
			}
			if len(bad) != 1 || bad["FL-KON-003"] != "failed" {
				t.Errorf("got %v", bad)
			}
			for _, format := range []string{"table", "short", "junit"} {
				if r, err := suite.Try(ctx, "check", "--context", suite.Context(), "--only", "FL-KON-003", "-o", format); err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "FL-KON-003") {
					t.Errorf("-o %s: exit code %d, %v\n%s", format, r.Code, err, r.Stdout)
				}
			}
			if r, err := suite.Try(ctx, "status", "--context", suite.Context()); err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "no agent of the tunnel is ready") || !strings.Contains(r.Stdout, "replicas 2/2") {
				t.Errorf("status: exit code %d, %v\n%s", r.Code, err, r.Stdout)
			}
		}},
	)
}

// An archive of a real cluster has logs, metrics and results, and is complete or says what is missing.
func TestSysdump(t *testing.T) {
	run(t, "fairlead sysdump", 2*time.Minute, step{"the archive is whole", func(ctx context.Context, t *testing.T) {
		file := filepath.Join(t.TempDir(), "dump.tar.gz")
		if _, err := suite.Must(ctx, "sysdump", "--context", suite.Context(), "-o", file); err != nil {
			t.Fatal(err)
		}
		names, text := contents(t, file)
		for _, want := range []string{"check.json", "status.json", "programs.json", "manifest.json", "objects/nodes.json", "metrics/kube-apiserver.txt", "logs/"} {
			if !strings.Contains(names, want) {
				t.Errorf("no %s in\n%s", want, names)
			}
		}
		if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "eyJhbGci") {
			t.Error("the archive has a key or a token")
		}
		if r, err := suite.Try(ctx, "sysdump", "--context", suite.Context(), "-o", file); err != nil || r.Code != 2 || !strings.Contains(r.Stderr, "exists") {
			t.Errorf("an existing file: exit code %d, %v: %s", r.Code, err, r.Stderr)
		}
	}})
}

func contents(t *testing.T, file string) (names, text string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(gz); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names, text
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		names, text = names+h.Name+"\n", text+string(data)
	}
}
