// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// EarlierPrograms is the variable that names a directory with the programs of an earlier version: the make targets e2e-upgrade and
// test-upgrade build them.
const EarlierPrograms = "FAIRLEAD_E2E_EARLIER"

// Home is the home directory of a user, which has only the caches of Go and of
// built components.
type Home struct {
	// Dir is the home directory, Bin holds the programs under test.
	Dir, Bin string
	// Env is the environment of every program.
	Env []string
}

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// BuildPrograms returns the directory of the programs under test: the one that
// FAIRLEAD_E2E_BIN names, as `make e2e` does, or a new one to build them into.
// done removes what was built.
func BuildPrograms(ctx context.Context) (dir string, done func(), err error) {
	if dir := os.Getenv("FAIRLEAD_E2E_BIN"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "fairlead")); err != nil {
			return "", nil, fmt.Errorf("FAIRLEAD_E2E_BIN: %w", err)
		}
		return dir, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "fairlead-e2e-bin-"); err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "github.com/fairlead-dev/fairlead/cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		done()
		return "", nil, fmt.Errorf("building the programs under test: %w\n%s", err, out)
	}
	return dir, done, nil
}

// NewHome makes a home directory whose name begins with prefix. It is short,
// because sockets below it must have short paths.
func NewHome(bin, prefix string) (*Home, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	return homeAt(bin, dir)
}

func homeAt(bin, dir string) (*Home, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	h := &Home{Dir: dir, Bin: bin}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "XDG_") && name != "HOME" && name != "KUBECONFIG" {
			h.Env = append(h.Env, kv)
		}
	}
	h.Env = append(h.Env, "HOME="+dir, "XDG_STATE_HOME="+dir+"/state", "XDG_CACHE_HOME="+cache)
	// Go's own caches stay the user's, and so does the way to a container runtime.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		if out, err := exec.Command("go", "env", name).Output(); err == nil { //nolint:noctx // prints and ends
			h.Env = append(h.Env, name+"="+strings.TrimSpace(string(out)))
		}
	}
	if own, err := os.UserHomeDir(); err == nil && os.Getenv("DOCKER_CONFIG") == "" {
		h.Env = append(h.Env, "DOCKER_CONFIG="+filepath.Join(own, ".docker"))
	}
	return h, nil
}

// Clusters are the names of all clusters of this user, of half-made ones too.
func (h *Home) Clusters() []string {
	found, _ := filepath.Glob(h.StateDir("*"))
	var names []string
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.IsDir() { // not its lock
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// StateDir is the directory of a cluster's files.
func (h *Home) StateDir(name string) string {
	return filepath.Join(h.Dir, "state/fairlead/clusters", name)
}

// FailedLogs is where an up that failed keeps the logs of what it has removed.
func (h *Home) FailedLogs(name string) string {
	return filepath.Join(h.Dir, "state/fairlead/failed-logs", name)
}

// Kubeconfig is the path of the user's kubeconfig.
func (h *Home) Kubeconfig() string { return filepath.Join(h.Dir, ".kube/config") }

// Command prepares fairlead with arguments.
func (h *Home) Command(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	return h.Program(ctx, filepath.Join(h.Bin, "fairlead"), args...)
}

// Program prepares any program with arguments.
func (h *Home) Program(ctx context.Context, path string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, path, args...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Env, cmd.Stdout, cmd.Stderr = h.Env, stdout, stderr
	// Processes that it starts in the background keep the pipes open; the test
	// must not wait for them.
	cmd.WaitDelay = 5 * time.Second
	return cmd, stdout, stderr
}

// Try runs fairlead; the error is that it could not be run, or not in time.
func (h *Home) Try(ctx context.Context, args ...string) (Result, error) {
	cmd, stdout, stderr := h.Command(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return Result{stdout.String(), stderr.String(), -1}, fmt.Errorf("fairlead %v: %w\n%s%s", args, errors.Join(err, ctx.Err()), stdout, stderr)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// Must runs fairlead, which has to succeed, and returns its standard output.
func (h *Home) Must(ctx context.Context, args ...string) (string, error) {
	r, err := h.Try(ctx, args...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("fairlead %v ended with %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout, err
}
