// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	wrapper "github.com/fairlead-dev/fairlead/e2e/offline/dockerd/runtime"
)

// The daemon under test copies this program where it needs the wrapper, and one test runs it as another user.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == wrapper.Name {
		fmt.Fprintln(os.Stderr, wrapper.Main(os.Args))
		os.Exit(1)
	}
	if name := filepath.Base(os.Args[0]); name == "dockerd" || name == "containerd" { // one that never answers
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	if dir := os.Getenv("START_IN"); dir != "" {
		_, err := Start(context.Background(), Options{Dir: dir, Always: true})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A real daemon, in its own network namespace, so it does not change another daemon's iptables rules.
func TestRealDaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker daemon")
	}
	for _, program := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its network with it
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	var log bytes.Buffer
	o := Options{Dir: filepath.Join(t.TempDir(), "d"), Always: true, Log: &log}
	t.Cleanup(func() {
		if err := Stop(context.Background(), o, true); err != nil {
			t.Error(err)
		}
	})
	found, err := Start(t.Context(), o)
	if err != nil || !found.Started || found.Host != "unix://"+o.Dir+"/docker.sock" || found.Version == "" {
		t.Fatalf("%+v, %v\n%s", found, err, &log)
	}
	t.Setenv("DOCKER_HOST", found.Host)
	if again, err := Start(t.Context(), o); err != nil || again.Started || again.Host != found.Host {
		t.Errorf("the second start: %+v, %v", again, err)
	}
	privileged(t, o)
	if err := Stop(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(t.Context(), found.Host); err == nil {
		t.Error("the daemon answers after it was stopped")
	}
	for _, program := range []string{"dockerd", "containerd", "containerd-shim"} {
		if pid := running(t, o, program); pid != "" {
			t.Errorf("%s runs on as process %s", program, pid)
		}
	}
	if _, err := os.Stat(o.path("data/image")); err != nil {
		t.Errorf("a stop without purge loses the images: %v", err)
	}
	if err := Stop(t.Context(), o, true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := Stop(t.Context(), o, true); err != nil {
		t.Errorf("stopping what does not run: %v", err)
	}
}

// privileged runs what kind runs: a privileged container, and a command in it.
func privileged(t *testing.T, o Options) {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte("package main\nimport \"time\"\nfunc main() { time.Sleep(time.Minute) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "sleep"), main)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pack := exec.Command("sh", "-c", "tar -C "+dir+" -c sleep | docker import - sleep")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := o.docker(t.Context(), "run", "--detach", "--network=none", "--privileged", "--name=asleep", "sleep", "/sleep"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.docker(t.Context(), "exec", "--privileged", "--detach", "asleep", "/sleep"); err != nil {
		t.Error(err)
	}
}

func running(t *testing.T, o Options, program string) string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && o.owns(pid, program) {
			return entry.Name()
		}
	}
	return ""
}

// scripts puts programs into a directory that alone is in PATH.
func scripts(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("DOCKER_HOST", "")
	return dir
}

func TestAnotherDaemonAnswers(t *testing.T) {
	scripts(t, map[string]string{"docker": `[ "$DOCKER_HOST" = "$WANT_HOST" ] && echo 28.1.0`})
	for _, host := range []string{"", "tcp://there:2376"} {
		t.Setenv("DOCKER_HOST", host)
		t.Setenv("WANT_HOST", host)
		var log bytes.Buffer
		dir := filepath.Join(t.TempDir(), "d")
		found, err := Start(t.Context(), Options{Dir: dir, Log: &log})
		if err != nil || found != (Found{Host: host, Version: "28.1.0"}) {
			t.Errorf("%q: %+v, %v", host, found, err)
		}
		if !strings.Contains(log.String(), "28.1.0") {
			t.Errorf("%q: it does not say which daemon it found: %s", host, &log)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%q: the private daemon's directory was made (%v)", host, err)
		}
	}
}

func TestCannotStart(t *testing.T) {
	const dead = `echo cannot connect >&2; exit 1`
	for name, tc := range map[string]struct {
		programs map[string]string
		host     string
		dir      string
		want     []string
		is       error
	}{
		"DOCKER_HOST is dead": {
			programs: map[string]string{"docker": dead}, host: "tcp://there:2376", is: ErrNoAnswer,
			want: []string{"tcp://there:2376", "unset DOCKER_HOST", "cannot connect"},
		},
		"not Debian": {is: ErrNotInstalled, want: []string{"install Docker", "DOCKER_HOST"}},
		"no network for apt": {
			programs: map[string]string{"apt-get": "echo Could not resolve the mirror; exit 100"}, is: ErrNotInstalled,
			want: []string{"apt-get update", "Could not resolve", "network"},
		},
		"full disk": {
			programs: map[string]string{"docker": dead, "dockerd": "echo mkdir data: no space left on device; exit 1"}, is: ErrNoAnswer,
			want: []string{"disk is full", "dockerd.log"},
		},
		"never answers": {
			programs: map[string]string{"docker": dead, "dockerd": "exec /bin/sleep 60"}, is: context.DeadlineExceeded,
			want: []string{"does not answer after 300ms", "dockerd.log"},
		},
		"long path":      {dir: "/tmp/" + strings.Repeat("x", 100), want: []string{"too long", "-dir"}},
		"read-only path": {dir: "/proc/nothing", programs: map[string]string{"docker": dead, "dockerd": "exit 1"}, want: []string{"/proc/nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("needs root: the program asks other users to become root first")
			}
			scripts(t, tc.programs)
			t.Setenv("DOCKER_HOST", tc.host)
			if tc.dir == "" {
				tc.dir = filepath.Join(t.TempDir(), "d")
			}
			_, err := Start(t.Context(), Options{Dir: tc.dir, Timeout: 300 * time.Millisecond})
			if err == nil || (tc.is != nil && !errors.Is(err, tc.is)) {
				t.Fatalf("error = %v, want %v", err, tc.is)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q in it", err, want)
				}
			}
		})
	}
}

// A dockerd that never answers is not left behind.
func TestNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker daemon")
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "d"), Timeout: 500 * time.Millisecond, Always: true}
	scripts(t, map[string]string{"docker": "exit 1"})
	if err := copySelf(filepath.Join(os.Getenv("PATH"), "dockerd")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), o); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("error = %v", err)
	}
	if pid := running(t, o, "dockerd"); pid != "" {
		t.Errorf("process %s is left", pid)
	}
}

func TestInstalls(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs")
	}
	dir := scripts(t, map[string]string{
		"apt-get": `echo "$RUNLEVEL $*" >>"$CALLS"; [ "$1" = update ] && exit 0
for p in docker dockerd; do printf '#!/bin/sh\nexit 1\n' >"$BIN/$p"; /bin/chmod +x "$BIN/$p"; done`,
		"apt-cache": `[ "$3" = docker-cli ]`,
	})
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	t.Setenv("BIN", dir)
	if _, err := exec.LookPath("/usr/sbin/dockerd"); err == nil {
		t.Log("dockerd is installed here; the docker command is what is missing")
	}
	err := Options{Log: &bytes.Buffer{}}.install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(calls)
	want := "1 update --quiet\n1 install --quiet --yes --no-install-recommends docker.io iptables docker-cli\n"
	if err != nil || string(got) != want {
		t.Errorf("%v, got\n%swant\n%s", err, got, want)
	}
}

func TestNotRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // others may not enter it
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if err := copySelf(self); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "START_IN="+filepath.Join(dir, "d"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), ErrNotRoot.Error()) || !strings.Contains(string(out), "sudo") {
		t.Errorf("%v: %s", err, out)
	}
}

// A pid from before a reboot may belong to any process now.
func TestForeignPid(t *testing.T) {
	o := Options{Dir: t.TempDir(), Log: &bytes.Buffer{}}
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	if err := os.WriteFile(o.path("docker.pid"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", "unix:///nowhere")
	if err := Stop(t.Context(), o, false); err != nil {
		t.Error(err)
	}
	if err := sleeper.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a foreign process was ended: %v", err)
	}
}

// A daemon that runs but does not answer is neither replaced nor stopped: its containers would end with it.
func TestStoppedDaemonIsLeftAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker daemon")
	}
	var log bytes.Buffer
	o := Options{Dir: filepath.Join(t.TempDir(), "d"), Timeout: time.Second, Always: true, Log: &log}
	bin := scripts(t, map[string]string{"docker": "exit 1"})
	containerd := filepath.Join(t.TempDir(), "containerd")
	for _, program := range []string{filepath.Join(bin, "dockerd"), containerd} {
		if err := copySelf(program); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stopped := sleeper(t, filepath.Join(bin, "dockerd"), o.path("data"))
	sleeper(t, containerd, o.path("exec/containerd"))
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"docker.pid": strconv.Itoa(stopped.Process.Pid), "dockerd.log": "what it has logged\n"} {
		if err := os.WriteFile(o.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(t.Context(), o)
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), strconv.Itoa(stopped.Process.Pid)) {
		t.Errorf("error = %v", err)
	}
	if data, err := os.ReadFile(o.path("dockerd.log")); err != nil || string(data) != "what it has logged\n" {
		t.Errorf("the running daemon's log is %q, %v", data, err)
	}
	for _, program := range []string{"dockerd", "containerd"} {
		if running(t, o, program) == "" {
			t.Errorf("%s was ended", program)
		}
	}
}

// sleeper runs this program under another name with a path of the daemon's, and reaps it at the end.
func sleeper(t *testing.T, program, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, "--root", path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
