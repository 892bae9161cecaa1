// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// otherImage is a bundle that differs from the default one in nothing but the
// server's image: the process has the very same flags.
func otherImage() *v1alpha1.Bundle {
	b := newBundle()
	b.Konnectivity.Server.Image = "registry.example.com/konnectivity-server:other"
	return b
}

// restarts are runs that change nothing that a process shows.
var restarts = map[string]func(context.Context, Options) error{
	"image": func(ctx context.Context, o Options) error {
		o.Bundle = otherImage()
		_, err := Install(ctx, o)
		return err
	},
	"renew": func(ctx context.Context, o Options) error {
		_, err := Renew(ctx, RenewOptions{Options: o, Restart: "always"})
		return err
	},
}

// TestRestartWithSameFlags: the kubelet is slow to notice that the manifest has
// changed, and its old process has the flags of the new one, and is healthy. The
// run ends when the new one runs, with what the cgroup says and without.
func TestRestartWithSameFlags(t *testing.T) {
	t.Parallel()
	for name, run := range restarts {
		for _, pods := range []bool{true, false} {
			root := testNode(t)
			install(t, root)
			inBubble(t, func(t *testing.T) {
				w := startWorld(root, pods, time.Second)
				defer w.end()
				if err := w.sync(); err != nil {
					t.Fatal(err)
				}
				if err := run(t.Context(), w.options()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				w.settled(t)
			})
		}
	}
}

// TestRollbackWithSameFlags: the new process does not get healthy, and the run ends
// when the old manifest's runs again, not when the new one's still does.
func TestRollbackWithSameFlags(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	install(t, root)
	before := snapshot(t, root)
	inBubble(t, func(t *testing.T) {
		w := startWorld(root, true, 300*time.Millisecond)
		defer w.end()
		if err := w.sync(); err != nil {
			t.Fatal(err)
		}
		ctx, o := w.failing(t.Context())
		o.Bundle = otherImage()
		if _, err := Install(ctx, o); !errors.Is(err, ErrRolledBack) {
			t.Errorf("%v, want ErrRolledBack", err)
		}
		w.settled(t)
	})
	sameTrees(t, before, snapshot(t, root))
}

// TestUnseenProcesses: where the node's processes cannot be seen, nothing begins.
func TestUnseenProcesses(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	w := startWorld(root, true, time.Hour)
	defer w.end()
	o := w.options()
	o.health = func(string) error { return nil }
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("install: %v, want ErrPreflight and what to do", err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
	install(t, root)
	before := snapshot(t, root)
	if _, err := Uninstall(t.Context(), o); !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("uninstall: %v, want ErrPreflight and what to do", err)
	}
	if _, err := Renew(t.Context(), RenewOptions{Options: o, Restart: "always"}); !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("renew: %v, want ErrPreflight and what to do", err)
	}
	sameTrees(t, before, snapshot(t, root))
}

// TestRestartKilledAtEveryEffect: a run that replaces a process by one with the same
// flags is killed after each effect, going forward and going back, with a kubelet
// that is slow. Whatever the moment, the next run ends when the kubelet runs what
// the manifests then say.
func TestRestartKilledAtEveryEffect(t *testing.T) {
	reference(t)
	for _, op := range []string{"image", "renew", "image-fails"} {
		points, stride := 0, stride(7)
		for killAt := 1; ; killAt += stride {
			root := installedNode(t)
			point, alive := runKilled(t, root, op, strconv.Itoa(killAt), "")
			if alive {
				break
			}
			points++
			t.Run(op+" killed after "+point, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := startWorld(root, killAt%10 == 0, 50*time.Millisecond)
					defer w.end()
					o := w.options()
					o.settle = 6 * w.every // the kubelet may have read the other manifest a moment before
					if _, err := Install(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					w.settled(t)
					complete(t, root)
					if _, err := Uninstall(t.Context(), w.options()); err != nil {
						t.Fatal(err)
					}
				})
				sameTrees(t, snapshot(t, pristine), snapshot(t, root))
			})
		}
		if points < 5/stride {
			t.Errorf("%s was killed at %d points only", op, points)
		}
	}
}

// killableRestart is what the process does that is killed: an operation of the
// test above.
func killableRestart(root, op string, pods bool, after func(string)) error {
	w := startWorld(root, pods, 50*time.Millisecond)
	defer w.end()
	if err := w.sync(); err != nil {
		return err
	}
	ctx, o := context.Background(), w.options()
	if op == "image-fails" {
		ctx, o = w.failing(ctx)
	}
	o.after = after
	err := restarts[strings.TrimSuffix(op, "-fails")](ctx, o)
	if op == "image-fails" && errors.Is(err, ErrRolledBack) {
		return nil
	}
	return err
}

// failing are options for a run that is interrupted as soon as it asks for the
// health of a server other than the one that runs now.
func (w *world) failing(ctx context.Context) (context.Context, Options) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := w.options()
	good := w.load().Hash[serverFile]
	o.health = func(url string) error {
		if s := w.load(); strings.HasPrefix(url, "http:") && s.Hash[serverFile] != good {
			cancel(errors.New("SIGTERM"))
			return errors.New("connection refused")
		}
		return w.health(url)
	}
	return ctx, o
}

func isRestart(op string) bool {
	return slices.Contains([]string{"image", "renew", "image-fails"}, op)
}
