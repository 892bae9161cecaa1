// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/interrupt/interrupttest"
)

// build makes this command, and a directory of programs for images.
func build(t *testing.T) (binary, bin string) {
	t.Helper()
	tmp := t.TempDir()
	binary, bin = filepath.Join(tmp, "images"), filepath.Join(tmp, "bin")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range imagetar.ProjectNames() {
		_, name, _ = strings.Cut(name[strings.LastIndex(name, "/"):], "/")
		name, _, _ = strings.Cut(name, ":")
		if err := os.Link(binary, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return binary, bin
}

// After each signal to end, it stops the docker process that it started, and leaves only complete
// archives.
func TestInterrupted(t *testing.T) {
	interrupttest.Hear(t)
	binary, bin := build(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			tmp := t.TempDir()
			out, started := filepath.Join(tmp, "out"), filepath.Join(tmp, "started")
			docker := "#!/bin/sh\n[ \"$1\" = load ] || exit 0\necho $$ >" + started + ".tmp\nmv " + started + ".tmp " + started + "\nexec sleep 60\n"
			if err := os.WriteFile(filepath.Join(tmp, "docker"), []byte(docker), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "-bin", bin, "-o", out)
			cmd.Env = append(os.Environ(), "PATH="+tmp+":/usr/bin:/bin")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var pid int
			for end := time.Now().Add(time.Minute); pid == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				data, _ := os.ReadFile(started)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("it ended with %v, want exit code 1", err)
			}
			if err := syscall.Kill(pid, 0); err == nil {
				t.Error("docker load runs on")
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			if left, _ := filepath.Glob(filepath.Join(out, ".image-*")); len(left) > 0 {
				t.Errorf("half an archive is left: %v", left)
			}
		})
	}
}
