package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/deploy/components"
)

// buildKubectl compiles the pinned kubectl; its packages are compiled already.
func buildKubectl(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := components.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	c, err := components.Get("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "kubectl")
	args := append([]string{"build"}, components.Flags()...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "-ldflags", c.LDFlags, "-o", out, c.Package)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), components.Environ()...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building kubectl: %v\n%s", err, text)
	}
	return out
}

// kubectl runs kubectl against the user's current context.
func (h *home) kubectl(path, stdin string, args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdin = h.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// What the README tells a user to do with kubectl, done with kubectl.
func checkKubectl(t *testing.T, h *home) {
	kubectl := buildKubectl(t)
	if got := h.kubectl(kubectl, "", "config", "current-context"); strings.TrimSpace(got) != "fairlead-dev" {
		t.Errorf("current context %q", got)
	}
	h.kubectl(kubectl, "", "run", "hello", "--image=registry.k8s.io/pause:3.10", `--overrides={"spec": {"schedulerName": "my-scheduler"}}`)
	h.kubectl(kubectl, "", "wait", "--for=condition=Ready", "pod/hello", "--timeout=30s")
	if got := h.kubectl(kubectl, "", "get", "events", "-o", "wide", "--field-selector", "reason=Scheduled,involvedObject.name=hello"); !strings.Contains(got, "my-scheduler") {
		t.Errorf("events do not name the scheduler:\n%s", got)
	}
	if got := h.kubectl(kubectl, "", "logs", "hello"); !strings.Contains(got, "simulated node") {
		t.Errorf("logs: %q", got)
	}
	if got := h.kubectl(kubectl, "", "exec", "hello", "--", "echo", "it works"); got != "it works\n" {
		t.Errorf("exec: %q", got)
	}
	if got := h.kubectl(kubectl, "in and out\n", "exec", "-i", "hello", "--", "head", "-n", "1"); got != "in and out\n" {
		t.Errorf("exec -i: %q", got)
	}
	forward(t, h, kubectl)
	h.kubectl(kubectl, "", "delete", "pod", "hello", "--wait=true")
}

// forward sends a line through kubectl port-forward and wants it back.
func forward(t *testing.T, h *home, kubectl string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectl, "port-forward", "pod/hello", ":80")
	cmd.Env = h.env
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "Forwarding from ")
	if err != nil || !ok {
		t.Fatalf("port-forward says %q, %v\n%s", line, err, stderr.String())
	}
	address, _, _ = strings.Cut(address, " ")
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "echo\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(conn, buf); err != nil && !errors.Is(err, io.EOF) || string(buf) != "echo\n" {
		t.Errorf("port-forward gave back %q, %v", buf, err)
	}
}
