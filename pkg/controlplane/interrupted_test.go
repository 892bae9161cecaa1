// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// stopAt ends a run after its n-th effect, as a kill would: nothing of it runs any
// more, and the system has released its lock. It returns the effect's name, or "" if
// the run finished first.
func stopAt(t *testing.T, o *Options, at int, run func() error) (point string) {
	t.Helper()
	effects := 0
	return stopWhen(t, o, func(string) bool { effects++; return effects == at }, run)
}

// stopAfter is like stopAt, for the effect's name.
func stopAfter(t *testing.T, o *Options, point string, run func() error) {
	t.Helper()
	if stopWhen(t, o, func(p string) bool { return p == point }, run) == "" {
		t.Fatalf("%q was never reached", point)
	}
}

func stopWhen(t *testing.T, o *Options, here func(point string) bool, run func() error) (point string) {
	t.Helper()
	o.after = func(p string) {
		if here(p) {
			panic(stopped(p))
		}
	}
	defer func() {
		o.after = nil
		switch r := recover().(type) {
		case nil:
		case stopped:
			point = string(r)
		default:
			panic(r)
		}
	}()
	if err := run(); err != nil {
		t.Fatal(err)
	}
	return ""
}

type stopped string

func otherBundle() *v1alpha1.Bundle {
	return &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: "/run/konnectivity/server.socket"}}}}
}

func twin(t *testing.T, root, suffix string) string {
	t.Helper()
	copyTree(t, root, root+suffix)
	return root + suffix
}

// TestInterruptedAfterInstallation ends a renewal, or an installation over an
// earlier one, after each single effect. The same command completes it. Uninstall
// restores what was before it and stops there, or removes everything if the run was
// done. The next Uninstall restores the original node.
func TestInterruptedAfterInstallation(t *testing.T) {
	t.Parallel()
	base := testNode(t)
	install(t, base)
	before, first := snapshot(t, base), snapshot(t, pristine)
	for name, again := range map[string]func(context.Context, Options) error{
		"renew": func(ctx context.Context, o Options) error {
			_, err := Renew(ctx, RenewOptions{Options: o, Restart: "always"})
			return err
		},
		"install": func(ctx context.Context, o Options) error {
			o.Bundle = otherBundle()
			_, err := Install(ctx, o)
			return err
		},
		"another protocol": func(ctx context.Context, o Options) error {
			o.Bundle = httpConnect()
			_, err := Install(ctx, o)
			return err
		},
	} {
		at, stride := 1, stride(12)
		for ; ; at += stride {
			root := testNode(t)
			copyTree(t, base, root)
			o := testOptions(root)
			point := stopAt(t, &o, at, func() error { return again(t.Context(), o) })
			if point == "" {
				break
			}
			t.Run(name+" after "+point, func(t *testing.T) {
				other := twin(t, root, "-2")
				if err := again(t.Context(), testOptions(root)); err != nil {
					t.Errorf("the same again: %v", err)
				}
				if (nodefs.Host{Root: root}).Exists(journal.File) {
					t.Error("the journal is still there")
				}
				uninstall(t, root)
				sameTrees(t, first, snapshot(t, root))

				_, err := Uninstall(t.Context(), testOptions(other))
				if errors.Is(err, ErrStillInstalled) {
					sameTrees(t, before, snapshot(t, other))
					uninstall(t, other)
				} else if err != nil {
					t.Errorf("uninstall: %v", err)
				}
				sameTrees(t, first, snapshot(t, other))
			})
		}
		if at < 10 {
			t.Errorf("%s: %d effects only", name, at)
		}
	}
}

// TestInterruptedAdvice checks that each command does what the advice says, and that
// a renewal, which a timer may have started, does not finish a run of another
// command.
func TestInterruptedAdvice(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o := testOptions(root)
	if point := stopAt(t, &o, 9, func() error { _, err := Install(t.Context(), o); return err }); point == "" {
		t.Fatal("it came to its end")
	}
	before := snapshot(t, root)
	_, renewErr := Renew(t.Context(), RenewOptions{Options: testOptions(root)})
	_, planErr := PlanInstall(t.Context(), testOptions(root))
	for _, err := range []error{renewErr, planErr} {
		if !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "an earlier install was interrupted while applying") ||
			!strings.Contains(err.Error(), "\"fairlead controlplane install\" for the same bundle completes it") {
			t.Errorf("%v", err)
		}
	}
	sameTrees(t, before, snapshot(t, root))
	install(t, root)
	if point := stopAt(t, &o, 4, func() error { _, err := Renew(t.Context(), RenewOptions{Options: o}); return err }); point == "" {
		t.Fatal("it came to its end")
	}
	if _, err := PlanInstall(t.Context(), testOptions(root)); err == nil || !strings.Contains(err.Error(), "\"fairlead certs renew\" completes it") {
		t.Errorf("%v", err)
	}
}

// TestRollbackThatFails checks that a run which finds an interrupted one says what
// to do if the rollback fails.
func TestRollbackThatFails(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o := testOptions(root)
	stopAfter(t, &o, "applied "+apiServerFile, func() error { _, err := Install(t.Context(), o); return err })
	o.waits = func(context.Context, *kubelet.Program) error { return errors.New("no answer") }
	_, err := Uninstall(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the earlier install changed failed") || !strings.Contains(err.Error(), "no answer") ||
		!strings.Contains(err.Error(), "run the same command again") {
		t.Errorf("%v", err)
	}
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}
