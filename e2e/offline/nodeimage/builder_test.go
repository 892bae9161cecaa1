// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// fakeDocker is a docker command that represents images by files of their name and records its arguments.
func fakeDocker(t *testing.T, more string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$*" >>` + dir + `/calls
` + more + `
name() { echo "$1" | tr /: __; }
case "$1 $2" in
"version --format") echo 28.1.0 ;;
"image inspect") for last; do :; done; cat "` + dir + `/image-$(name "$last")" 2>/dev/null ;;
"run --detach") echo container ;;
"commit --change") for last; do :; done; echo "id of $last" >"` + dir + `/image-$(name "$last")" ;;
"tag "*) cp "` + dir + `/image-$(name "$2")" "` + dir + `/image-$(name "$3")" ;;
*) cat >/dev/null ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return func() string {
		data, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(data)
	}
}

func testBuilder(t *testing.T) *builder {
	t.Helper()
	return &builder{progress: progress.Silent, workDir: t.TempDir()}
}

// oneStage is a last stage that runs a command in a container.
func oneStage(b *builder, change func(context.Context, container) error) []stage {
	return []stage{{name: "project", tag: "stage:key", build: func(ctx context.Context, below, tag string) error {
		return b.inContainer(ctx, below, tag, func(c container) error { return change(ctx, c) })
	}}}
}

func TestBuildsWhatIsMissing(t *testing.T) {
	calls := fakeDocker(t, "")
	b := testBuilder(t)
	builds := 0
	stages := oneStage(b, func(context.Context, container) error { builds++; return nil })
	for want := range 2 {
		built, err := b.build(t.Context(), stages)
		if err != nil || built != (want == 0) {
			t.Fatalf("run %d: built %v, %v", want+1, built, err)
		}
	}
	if builds != 1 {
		t.Errorf("%d builds of one input, want 1", builds)
	}
	if !b.docker.has(t.Context(), nodeimage.Name()) {
		t.Errorf("the image has no name; docker was asked for\n%s", calls())
	}
	b.force = true
	if built, err := b.build(t.Context(), stages); err != nil || !built || builds != 2 {
		t.Errorf("-force: built %v, %v, %d builds", built, err, builds)
	}
	if got := strings.Count(calls(), "rm --force --volumes container"); got != 2 {
		t.Errorf("%d containers were removed, want 2", got)
	}
}

// A stage that fails or is interrupted leaves no container and no image, and the next run builds it.
func TestFailedAndInterruptedBuilds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	for name, tc := range map[string]struct {
		ctx    context.Context
		change func(context.Context, container) error
		want   string
	}{
		"fails": {t.Context(), func(context.Context, container) error { return errors.New("no such program") }, "no such program"},
		"interrupted": {ctx, func(ctx context.Context, c container) error {
			time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("interrupt signal received")) })
			_, err := c.docker.run(ctx, nil, "exec", c.id, "sleep")
			return err
		}, "interrupt signal received"},
		"full disk": {t.Context(), func(context.Context, container) error {
			return errors.New("write blob: no space left on device")
		}, "make room"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := fakeDocker(t, `case "$*" in *sleep) exec sleep 30 ;; esac`)
			b := testBuilder(t)
			began := time.Now()
			if _, err := b.build(tc.ctx, oneStage(b, tc.change)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if got := calls(); strings.Contains(got, "commit") || !strings.Contains(got, "rm --force --volumes container") {
				t.Errorf("docker was asked for\n%s", got)
			}
			built, err := b.build(t.Context(), oneStage(b, func(context.Context, container) error { return nil }))
			if err != nil || !built || !b.docker.has(t.Context(), nodeimage.Name()) {
				t.Errorf("the next run: built %v, %v", built, err)
			}
		})
	}
}

func TestDockerMissing(t *testing.T) {
	fakeDocker(t, "echo Cannot connect to the Docker daemon >&2; exit 1")
	if err := testBuilder(t).prepare(t.Context()); !errors.Is(err, errDocker) || !strings.Contains(err.Error(), "go -C e2e/offline run ./dockerd start") || !strings.Contains(err.Error(), "Cannot connect") {
		t.Errorf("no daemon: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := testBuilder(t).prepare(t.Context()); !errors.Is(err, errDocker) || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("no docker: %v", err)
	}
}

func TestDebianMissing(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := testBuilder(t).buildDebian(t.Context(), "", "stage:debian"); !errors.Is(err, errNotRoot) {
			t.Errorf("not root: %v", err)
		}
		return
	}
	b := testBuilder(t)
	t.Setenv("PATH", t.TempDir()) // neither debootstrap nor apt-get
	if err := b.buildDebian(t.Context(), "", "stage:debian"); err == nil || !strings.Contains(err.Error(), "debootstrap") {
		t.Errorf("no debootstrap: %v", err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'E: Failed getting release file http://nowhere/dists/bookworm/Release'\nmkdir -p \"$4\"/half; exit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "debootstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	b.mirror = "http://nowhere"
	err := b.buildDebian(t.Context(), "", "stage:debian")
	if err == nil || !strings.Contains(err.Error(), "Failed getting release file") || !strings.Contains(err.Error(), "http://nowhere") {
		t.Errorf("no mirror: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.workDir, "work-*")); len(left) > 0 {
		t.Errorf("half a system is left: %v", left)
	}
}

// A builder removes what a killed one left behind: its directories, including mounts in them, and its containers.
func TestLeftovers(t *testing.T) {
	calls := fakeDocker(t, `case "$1" in ps) echo old1 old2; exit 0 ;; esac`)
	b := testBuilder(t)
	left := filepath.Join(b.workDir, "work-1/root/proc")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := syscall.Mount("tmpfs", left, "tmpfs", 0, ""); err != nil {
			t.Logf("no mount can be made here: %v", err)
		}
	}
	unlock, err := b.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(b.workDir, "work-1")); !os.IsNotExist(err) {
		t.Errorf("a directory is left: %v", err)
	}
	if !strings.Contains(calls(), "rm --force --volumes old1 old2") {
		t.Errorf("containers are left: docker was asked for\n%s", calls())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second builder did not wait: %v", err)
	}
}

// TestLeavesOtherBuildersAlone: the lock covers one directory, but other users may share the daemon.
func TestLeavesOtherBuildersAlone(t *testing.T) {
	calls := fakeDocker(t, `[ "$1" = ps ] && echo left && exit`)
	mine, other := testBuilder(t), testBuilder(t)
	if labelFor(mine.workDir) == labelFor(other.workDir) {
		t.Fatalf("labels %s and %s", labelFor(mine.workDir), labelFor(other.workDir))
	}
	unlock, err := mine.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	want := "ps --all --quiet --filter label=" + labelFor(mine.workDir) + "\nrm --force --volumes left\n"
	if got := calls(); got != want {
		t.Errorf("asked docker for\n%swant\n%s", got, want)
	}
	if _, err := mine.build(t.Context(), oneStage(mine, func(context.Context, container) error { return nil })); err != nil {
		t.Fatal(err)
	}
	if got := calls(); !strings.Contains(got, "--label="+labelFor(mine.workDir)+" ") {
		t.Errorf("its own containers have another label:\n%s", got)
	}
}
