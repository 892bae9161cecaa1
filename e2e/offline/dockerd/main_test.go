// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/interrupt/interrupttest"
)

// program builds this command, and makes the arguments of a daemon in a network of its own.
func program(t *testing.T) (binary, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker daemon")
	}
	for _, name := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	tmp := t.TempDir()
	binary = filepath.Join(tmp, "dockerd-tool")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir = filepath.Join(tmp, "d")
	t.Cleanup(func() {
		if out, err := exec.Command(binary, "stop", "-purge", "-dir", dir).CombinedOutput(); err != nil {
			t.Errorf("stop: %v: %s", err, out)
		}
	})
	return binary, dir
}

func command(binary string, args ...string) (*exec.Cmd, *strings.Builder) {
	var out strings.Builder
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return cmd, &out
}

func answers(dir string) bool {
	cmd := exec.Command("docker", "version")
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+dir+"/docker.sock")
	return cmd.Run() == nil
}

// The daemon runs for as long as the command does, and the command's exit code is the result, as CI needs it.
func TestRunFails(t *testing.T) {
	binary, dir := program(t)
	cmd, out := command(binary, "run", "-always", "-dir", dir, "--", "sh", "-c", `docker version --format "{{.Server.Os}} at $DOCKER_HOST" && exit 7`)
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit: %v, want 7", err)
	}
	if want := "linux at unix://" + dir + "/docker.sock"; !strings.Contains(out.String(), want) {
		t.Errorf("the command saw no daemon: want %q in\n%s", want, out)
	}
	if answers(dir) {
		t.Error("the daemon runs on")
	}
}

func TestRunIsInterrupted(t *testing.T) {
	binary, dir := program(t)
	marks := t.TempDir()
	script := `trap 'touch "$0/cleaned"; exit 1' TERM; (touch "$0/started"; sleep 300; touch "$0/orphan") & wait`
	cmd, out := command(binary, "run", "-always", "-dir", dir, "--", "sh", "-c", script, marks)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, filepath.Join(marks, "started"))
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted command counts as a success")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v: a process of the command was not told", took)
	}
	if _, err := os.Stat(filepath.Join(marks, "cleaned")); err != nil {
		t.Errorf("the command could not clean up: %v\n%s", err, out)
	}
	if answers(dir) {
		t.Error("the daemon runs on")
	}
}

// A closed terminal ends the command with a signal, as a service manager does.
func TestTerminalIsClosed(t *testing.T) {
	interrupttest.Hear(t)
	tmp := t.TempDir()
	binary := filepath.Join(tmp, "dockerd-tool")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(tmp, "docker"), []byte("#!/bin/sh\necho 28.1.0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tmp+":"+os.Getenv("PATH"))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		marks := t.TempDir()
		cmd := exec.Command(binary, "run", "--", "sh", "-c", `trap 'touch "$0/cleaned"; exit 1' TERM; touch "$0/started"; while :; do sleep 0.1; done`, marks)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, filepath.Join(marks, "started"))
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%v: it ended with %v, want exit code 1", sig, err)
		}
		if _, err := os.Stat(filepath.Join(marks, "cleaned")); err != nil {
			t.Errorf("%v: the command was not asked to end", sig)
		}
	}
}

func await(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
	}
	t.Fatalf("no %s after a minute", file)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"begin"}, {"run"}, {"start", "now"}, {"stop", "it"}} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
