// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Fixtures that are created once: a node as kubeadm leaves it, the same node after
// an installation without interruption, and that node's files.
var (
	pristine      string
	installedTree string
	installed     map[string]string

	referenceOnce sync.Once
)

// Environment variables of this test binary when it runs as the command to be
// killed.
const (
	envRoot   = "CONTROLPLANE_TEST_ROOT"
	envOp     = "CONTROLPLANE_TEST_OPERATION"
	envKillAt = "CONTROLPLANE_TEST_KILL_AT"
	envAPI    = "CONTROLPLANE_TEST_API"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(envRoot); root != "" {
		os.Exit(killed(root))
	}
	dir, err := os.MkdirTemp("", "controlplane")
	if err == nil {
		pristine = filepath.Join(dir, "node")
		err = kubeadmNode(pristine, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// testOptions returns options for a node without a kubelet and an API server:
// everything except the waits is real.
func testOptions(root string) Options {
	return Options{
		Root: root, Bundle: newBundle(), LeaveKubeadmConfig: true,
		// Ports that no other test on this machine uses do not matter here: nothing listens.
		user:  func() int { return 0 },
		waits: func(context.Context, *kubelet.Program) error { return nil },
	}
}

// killed runs an operation and kills this process after its n-th effect, or after a
// named effect ("name#2" is its second occurrence). It returns the number of
// effects if the kill never happens.
func killed(root string) int {
	killAt := os.Getenv(envKillAt)
	o, n, seen := testOptions(root), 0, map[string]int{}
	o.after = func(point string) {
		n++
		seen[point]++
		if killAt == strconv.Itoa(n) || killAt == fmt.Sprintf("%s#%d", point, seen[point]) || killAt == point {
			fmt.Println(point)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	var err error
	if api := os.Getenv(envAPI); api != "" {
		withAPI(&o, api)
	}
	switch op := os.Getenv(envOp); {
	case op == brokenUninstall:
		o.ready = func() error { return errors.New("connection refused") }
		_, err = Uninstall(context.Background(), o)
	case isRestart(op):
		err = killableRestart(root, op, strings.HasSuffix(killAt, "0"), o.after)
	case op == string(OpInstall):
		_, err = Install(context.Background(), o)
	default:
		_, err = Uninstall(context.Background(), o)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("effects %d\n", n)
	return 0
}

// runKilled runs an operation in a separate process and returns where it was
// killed; alive is true if it finished first. Tests that call it do not run beside others (see copyTree).
func runKilled(t *testing.T, root, op, killAt, api string) (point string, alive bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRoot+"="+root, envOp+"="+op, envAPI+"="+api, envKillAt+"="+killAt)
	out, err := cmd.Output()
	point = strings.TrimSpace(string(out))
	var exit *exec.ExitError
	switch {
	case err == nil:
		return point, true
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return point, false
	}
	t.Fatalf("%s: %v\n%s", op, err, out)
	return "", false
}

func install(t *testing.T, root string) Result {
	t.Helper()
	r, err := Install(t.Context(), testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func uninstall(t *testing.T, root string) Result {
	t.Helper()
	r, err := Uninstall(t.Context(), testOptions(root))
	if err != nil && !errors.Is(err, ErrNotInstalled) {
		t.Fatal(err)
	}
	return r
}

// reference makes an installation without interruption.
func reference(t *testing.T) {
	t.Helper()
	referenceOnce.Do(func() {
		tree := filepath.Join(filepath.Dir(pristine), "installed")
		copyTree(t, pristine, tree)
		install(t, tree)
		installedTree, installed = tree, snapshot(t, tree)
	})
}

// installedNode returns a copy of a node on which the tunnel is installed.
// Installing it each time would generate another key each time.
func installedNode(t *testing.T) string {
	t.Helper()
	reference(t)
	return nodeFrom(t, installedTree)
}

// stride is 1 where all tests run. Elsewhere, a test that ends a run after each of its effects takes every n-th one.
func stride(n int) int {
	if testing.Short() || testutil.Main() {
		return n
	}
	return 1
}

// TestKilledAtEveryEffect kills the process with SIGKILL after each single effect
// of an installation and of an uninstallation. Wherever the kill happens, the next
// run of either command reaches its own goal: the complete installation, or the
// original node, byte for byte.
func TestKilledAtEveryEffect(t *testing.T) {
	reference(t)
	before := snapshot(t, pristine)
	for _, op := range []Operation{OpInstall, OpUninstall} {
		points, stride := 0, stride(9)
		for killAt := 1; ; killAt += stride {
			start := map[Operation]func(*testing.T) string{OpInstall: testNode, OpUninstall: installedNode}[op](t)
			point, alive := runKilled(t, start, string(op), strconv.Itoa(killAt), "")
			if alive {
				break
			}
			points++
			other := twin(t, start, "-2")
			t.Run(fmt.Sprintf("%s killed after %d %s", op, killAt, point), func(t *testing.T) {
				t.Parallel()
				install(t, start)
				complete(t, start)
				if r := install(t, start); r.Changed {
					t.Errorf("the second run changed %v", r.Files)
				}
				uninstall(t, start)
				sameTrees(t, before, snapshot(t, start))
				uninstall(t, other)
				sameTrees(t, before, snapshot(t, other))
			})
		}
		if points < 15/stride {
			t.Errorf("%s was killed at %d points only", op, points)
		}
	}
}

// TestFailureAtEveryStep makes the wait of each step fail, and checks that the run
// rolls everything back by itself.
func TestFailureAtEveryStep(t *testing.T) {
	t.Parallel()
	before := snapshot(t, pristine)
	for _, program := range []string{"proxy-server", apiServer} {
		root := testNode(t)
		o := testOptions(root)
		failed := false
		o.waits = func(_ context.Context, p *kubelet.Program) error {
			if p.Name == program && !failed {
				failed = true
				return errors.New("no answer")
			}
			return nil
		}
		_, err := Install(t.Context(), o)
		if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%s: %v, want ErrRolledBack", program, err)
		}
		sameTrees(t, before, snapshot(t, root))
	}
}

// TestInterrupt: SIGINT and SIGTERM cancel the context, and the run rolls
// everything back although its context is canceled.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	o := testOptions(root)
	o.waits = func(ctx context.Context, p *kubelet.Program) error {
		if p.Name == apiServer {
			cancel(errors.New("SIGTERM"))
		}
		return ctx.Err()
	}
	_, err := Install(ctx, o)
	if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "interrupted: SIGTERM") {
		t.Errorf("%v", err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestUninstallAfterEdits checks that edits made since the installation stay, and
// that only fairlead's lines leave kube-apiserver's manifest.
func TestUninstallAfterEdits(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	const manifest, config = "/etc/kubernetes/manifests/kube-apiserver.yaml", v1alpha1Egress
	data, err := h.Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(data), "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4 # loud\n", 1)
	for name, text := range map[string]string{manifest: edited, config: "# mine\n"} {
		if err := os.WriteFile(h.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := uninstall(t, root)
	if len(r.Left) != 1 || !strings.Contains(r.Left[0], config) {
		t.Errorf("left %v, want %s", r.Left, config)
	}
	want, err := nodefs.Host{Root: pristine}.Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.Replace(string(got), "    - --v=4 # loud\n", "", 1); s != string(want) || s == string(got) {
		t.Errorf("the manifest is\n%s", got)
	}
}

const v1alpha1Egress = "/etc/kubernetes/konnectivity/egress-selector-configuration.yaml"
