// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Every invalid Bundle is rejected, with the field and the remedy, before
// anything is created.
func TestWrongBundles(t *testing.T) {
	h := newHome(t)
	for name, tc := range map[string]struct {
		yaml string
		want []string
	}{
		"unknown field":       {"scheduler: {replica: 3}", []string{"replica"}},
		"wrong type":          {"scheduler: {replicas: many}", []string{"replicas"}},
		"wrong version":       {"apiVersion: fairlead.dev/v9", []string{"fairlead.dev/v9", "fairlead.dev/v1beta1"}},
		"old shape":           {"apiVersion: fairlead.dev/v1alpha1\nkind: Bundle\nscheduler: {}", []string{"scheduler", "move these fields under spec"}},
		"default-scheduler":   {"scheduler: {profiles: [{schedulerName: default-scheduler}]}", []string{"scheduler.profiles[0].schedulerName"}},
		"stock lease":         {"scheduler: {leaderElection: {leaseName: kube-scheduler}}", []string{"scheduler.leaderElection.leaseName"}},
		"equal profiles":      {"scheduler: {profiles: [{schedulerName: a}, {schedulerName: a}]}", []string{"scheduler.profiles[1].schedulerName"}},
		"long socket":         {"konnectivity: {transport: {uds: {path: /" + strings.Repeat("s", 107) + "}}}", []string{"konnectivity.transport.uds.path", "107"}},
		"GRPC over TCP":       {"konnectivity: {transport: {tcp: {url: 'https://127.0.0.1:8131'}}}", []string{"konnectivity.transport", "HTTPConnect"}},
		"unequal ports":       {"konnectivity: {agent: {extraArgs: [{name: proxy-server-port, value: '9000'}]}}", []string{"konnectivity.agent.extraArgs[0]", "konnectivity.serverAddresses[0].port"}},
		"unequal audiences":   {"konnectivity: {server: {extraArgs: [{name: authentication-audience, value: x}]}}", []string{"konnectivity.server.extraArgs[0]", "konnectivity.authenticationAudience"}},
		"two documents":       {bundletest.File("scheduler: {}") + "---\n" + bundletest.File("scheduler: {}"), []string{"document"}},
		"not YAML":            {"scheduler: {", []string{"bundle.yaml"}},
		"field given twice":   {"scheduler: {replicas: 1, replicas: 2}", []string{"replicas"}},
		"unknown algorithm":   {"pki: {algorithm: DSA}", []string{"pki.algorithm"}},
		"a transport of both": {"konnectivity: {proxyProtocol: HTTPConnect, transport: {uds: {path: /a/b}, tcp: {url: 'https://a:8131'}}}", []string{"konnectivity.transport"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(h.Dir, "bundle.yaml")
			content := tc.yaml
			if !strings.Contains(content, "apiVersion") {
				content = bundletest.File(content)
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			r := h.try("up", "-f", file)
			r.want(t, 1, tc.want...)
			if lines := strings.Count(strings.TrimSpace(r.Stderr), "\n"); lines > 0 {
				t.Errorf("%d lines of error for one mistake:\n%s", lines+1, r.Stderr)
			}
			if _, err := os.Stat(h.StateDir("dev")); !os.IsNotExist(err) {
				t.Errorf("something was made: %v", err)
			}
		})
	}
}

func TestWrongArguments(t *testing.T) {
	h := newHome(t)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"bad name":        {[]string{"up", "--name", "Dev_1"}, []string{"Dev_1", "lower-case"}},
		"no nodes":        {[]string{"up", "--nodes", "0"}, []string{"--nodes"}},
		"too many agents": {[]string{"up", "--agents", "1000"}, []string{"--agents"}},
		"missing file":    {[]string{"up", "-f", "/nowhere.yaml"}, []string{"/nowhere.yaml"}},
		"no such cluster": {[]string{"status", "--name", "none"}, []string{"none", "list"}},
		"no kubeconfig":   {[]string{"kubeconfig", "--name", "none"}, []string{"none"}},
		"empty directory": {[]string{"up", "--component-dir", h.Dir}, []string{h.Dir, "etcd"}},
		"bad output":      {[]string{"list", "-o", "xml"}, []string{"xml", "json"}},
		"unknown command": {[]string{"upp"}, []string{"upp"}},
	} {
		t.Run(name, func(t *testing.T) { h.try(tc.args...).want(t, 1, tc.want...) })
	}
}

func TestPortTaken(t *testing.T) {
	h := newHome(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	h.try("up", "--api-server-port", port).want(t, 1, port, "kube-apiserver", "another program")
	h.neverMade()
}

// neverMade checks that a cluster that was never created has no state.
func (h *home) neverMade() {
	h.t.Helper()
	if _, err := os.Stat(h.StateDir("dev")); !os.IsNotExist(err) {
		h.t.Errorf("state was made: %v", err)
	}
}

func TestMissingToolchain(t *testing.T) {
	h := newHome(t)
	h.Env = append(h.Env, "PATH=/nonexistent", "XDG_CACHE_HOME="+h.Dir+"/empty-cache")
	h.try("up").want(t, 1, "Go", "PATH", "--component-dir")
	h.neverMade()
}

// kubernetesPrograms are the programs of a cluster that are built from other modules.
var kubernetesPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// builtComponents returns the cache directory of these programs, after building what is missing.
func builtComponents(t *testing.T) string {
	t.Helper()
	paths, err := binaries.Components(t.Context(), binaries.Options{}, kubernetesPrograms, progress.Silent)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(paths["etcd"])
}

// components returns a directory with links to the built programs.
func (h *home) components() string {
	h.t.Helper()
	from, to := builtComponents(h.t), filepath.Join(h.Dir, "components")
	if err := os.MkdirAll(to, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, name := range kubernetesPrograms {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			h.t.Fatal(err)
		}
	}
	return to
}

// breakProgram replaces a program by one that says something and ends.
func breakProgram(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	_ = os.Remove(path)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'the dog ate my flags' >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// A bring-up that fails says which program and why, keeps the logs and nothing else.
func TestFailedUp(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := h.components()
	breakProgram(t, dir, "kube-controller-manager")
	r := h.try("up", "--component-dir", dir)
	logs := filepath.Join(h.Dir, "state/fairlead/failed-logs/dev")
	r.want(t, 1, "kube-controller-manager", "exit status 7", "the dog ate my flags", logs)
	if data, err := os.ReadFile(filepath.Join(logs, "kube-controller-manager.log")); err != nil || !bytes.Contains(data, []byte("the dog")) {
		t.Errorf("the log was not kept: %q, %v", data, err)
	}
	if left, _ := process.FindMarked(h.StateDir("dev")); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := os.Stat(h.StateDir("dev")); !os.IsNotExist(err) {
		t.Errorf("state is left: %v", err)
	}
	h.must("down") // takes the logs away
	if _, err := os.Stat(logs); !os.IsNotExist(err) {
		t.Errorf("logs are left after down: %v", err)
	}

	r = h.try("up", "--component-dir", dir, "--retain")
	r.want(t, 1, "kube-controller-manager", "kept for inspection", h.StateDir("dev"))
	if left, _ := process.FindMarked(h.StateDir("dev")); len(left) == 0 {
		t.Error("--retain kept no process")
	}
	h.must("down")
	h.nothingLeft("dev")
}

// waitFor polls for something that a command in the background does.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testutil.Eventually(t, time.Minute, func() error {
		if !ok() {
			return fmt.Errorf("waiting for %s", what)
		}
		return nil
	})
}

// startUp begins an up and returns once its API server runs.
func startUp(t *testing.T, h *home) (stop func(os.Signal), wait func() result) {
	t.Helper()
	cmd, stdout, stderr := h.command(context.WithoutCancel(t.Context()), "up")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the supervisor's programs", func() bool {
		left, _ := process.FindMarked(h.StateDir("dev"))
		return len(left) >= 3
	})
	return func(s os.Signal) { _ = cmd.Process.Signal(s) }, func() result {
		_ = cmd.Wait()
		return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
}

func TestInterruptedUp(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stop, wait := startUp(t, h)
	stop(os.Interrupt)
	wait().want(t, 130, "interrupted", "removed what was made", "failed-logs")
	if left, _ := process.FindMarked(h.StateDir("dev")); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := os.Stat(h.StateDir("dev")); !os.IsNotExist(err) {
		t.Errorf("state is left: %v", err)
	}
}

// A killed "up" cannot clean up. A new "up" recognizes what is left and does
// not touch it; "down" removes it.
func TestKilledUp(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stop, wait := startUp(t, h)
	h.try("up").want(t, 1, "another fairlead command", `"dev"`) // a second up at the same time
	stop(syscall.SIGKILL)
	wait()
	h.try("up").want(t, 1, "incomplete", h.StateDir("dev"), "down --name dev")
	if left, _ := process.FindMarked(h.StateDir("dev")); len(left) == 0 {
		t.Error("the refused up ended the processes of the first")
	}
	h.must("down")
	h.nothingLeft("dev")
}

// A CA that cannot be used stops a start with one clear line, and the cluster
// stays stopped and as it was.
func TestBrokenAuthority(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must("up", "--no-verify", "-q")
	if err := syscall.Kill(h.status("dev").SupervisorPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the programs to end", func() bool {
		left, _ := process.FindMarked(h.StateDir("dev"))
		return len(left) == 0
	})
	dir := filepath.Join(h.StateDir("dev"), "pki")
	expired, stranger := newCA(t, time.Now().Add(-48*time.Hour)), newCA(t, time.Now())
	leaf, err := stranger.Issue(shortLived, pki.Request{CommonName: "leaf", Usages: pki.ServerAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	frontProxy, err := os.ReadFile(filepath.Join(dir, "front-proxy-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	frontProxyKey, err := os.ReadFile(filepath.Join(dir, "front-proxy-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"expired":                 {expired.CertPEM(), keyPEM(t, expired), "expired"},
		"another key":             {stranger.CertPEM(), keyPEM(t, expired), "private key does not belong"},
		"no CA":                   {leaf.CertPEM(), keyPEM(t, leaf), "not a CA"},
		"no key":                  {stranger.CertPEM(), nil, "ca.key"},
		"garbage":                 {[]byte("garbage"), []byte("garbage"), "ca.crt"},
		"shared with front proxy": {frontProxy, frontProxyKey, "two purposes"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, data := range map[string][]byte{"ca.crt": tc.cert, "ca.key": tc.key} {
				path := filepath.Join(dir, file)
				_ = os.Remove(path)
				if data == nil {
					continue
				}
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h.try("up").want(t, 1, tc.want, "down --name dev")
			if left, _ := process.FindMarked(h.StateDir("dev")); len(left) > 0 {
				t.Errorf("processes %v were left running", left)
			}
		})
	}
	h.must("down")
	h.nothingLeft("dev")
}

// shortLived creates certificates that expire after a day.
var shortLived = pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: 24 * time.Hour}

func newCA(t *testing.T, now time.Time) pki.KeyPair {
	t.Helper()
	ca, err := pki.NewCA(shortLived, "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func keyPEM(t *testing.T, pair pki.KeyPair) []byte {
	t.Helper()
	data, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return data
}
