// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

func chmod(t *testing.T, h nodefs.Host, name string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(h.Path(name), mode); err != nil {
		t.Fatal(err)
	}
}

func stat(t *testing.T, h nodefs.Host, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(h.Path(name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// closed fails unless a file is still the same inode and only its owner has access.
func closed(t *testing.T, h nodefs.Host, name string, before fs.FileInfo) {
	t.Helper()
	if now := stat(t, h, name); !os.SameFile(before, now) || now.Mode().Perm() != 0o600 {
		t.Errorf("%s: mode %v, the same file: %v", name, now.Mode(), os.SameFile(before, now))
	}
}

// TestExposedKubeconfig checks that the next command, whichever it is, reports a
// world-readable kubeconfig and restricts its mode. It does so in place, as the
// server's Pod has the kubeconfig mounted as a single file.
// It observes KON-23 of docs/requirements.md.
// It also observes OLD-28 of docs/requirements.md.
func TestExposedKubeconfig(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	const file = v1alpha1.DefaultServerKubeconfig
	before := stat(t, h, file)
	chmod(t, h, file, 0o644)
	if list := Certificates(testOptions(root), WarnBefore); !slices.ContainsFunc(list, func(c Certificate) bool { return c.Path == file && c.State == CertExposed }) {
		t.Errorf("not reported: %+v", list)
	}
	exposed := snapshot(t, root)
	o := failingOptions(root, func() {})
	o.Bundle = otherBundle()
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Fatal(err)
	}
	sameTrees(t, exposed, snapshot(t, root))

	var notes strings.Builder
	o = testOptions(root)
	o.Notef = func(format string, args ...any) { notes.WriteString(fmt.Sprintf(format, args...)) }
	if r, err := Install(t.Context(), o); err != nil || !slices.Equal(r.Files, []string{file}) || !strings.Contains(notes.String(), file) {
		t.Errorf("%+v, %v, %s", r, err, notes.String())
	}
	closed(t, h, file, before)
	if r := install(t, root); r.Changed {
		t.Errorf("the second run changed %v", r.Files)
	}

	chmod(t, h, file, 0o644)
	old, err := h.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	renew(t, RenewOptions{Options: testOptions(root), Before: WarnBefore})
	closed(t, h, file, before)
	if now, err := h.Read(file); err != nil || string(now) == string(old) {
		t.Errorf("the key that others could read was not replaced (%v)", err)
	}
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestExposedKubeconfigOfSomebodyElse does the same for a kubeconfig that existed
// before the installation, and checks that it stays.
func TestExposedKubeconfigOfSomebodyElse(t *testing.T) {
	t.Parallel()
	other, root := testNode(t), testNode(t)
	h := nodefs.Host{Root: root}
	install(t, other)
	data, err := nodefs.Host{Root: other}.Read(v1alpha1.DefaultServerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	put(t, h, v1alpha1.DefaultServerKubeconfig, string(data))
	chmod(t, h, v1alpha1.DefaultServerKubeconfig, 0o644)
	before := stat(t, h, v1alpha1.DefaultServerKubeconfig)
	install(t, root)
	closed(t, h, v1alpha1.DefaultServerKubeconfig, before)
	uninstall(t, root)
	closed(t, h, v1alpha1.DefaultServerKubeconfig, before)
}

// TestExposedKeys covers the server's own keys, and those of kube-apiserver's
// connection to it.
func TestExposedKeys(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	o := testOptions(root)
	o.Bundle = tcpBundle()
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	k := o.Bundle.Konnectivity
	keys := []string{k.Server.KeyFile, k.Transport.TCP.ClientKey}
	var before []fs.FileInfo
	for _, key := range keys {
		chmod(t, h, key, 0o640)
		before = append(before, stat(t, h, key))
	}
	exposed := 0
	for _, c := range Certificates(o, WarnBefore) {
		if c.State == CertExposed {
			exposed++
		}
	}
	if exposed != 2 {
		t.Errorf("%d exposed keys reported, want 2", exposed)
	}
	if r, err := Install(t.Context(), o); err != nil || len(r.Files) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for i, key := range keys {
		closed(t, h, key, before[i])
	}
}

// TestCloseInterrupted checks that restricting a file's mode is rolled back, or
// completed, after an interruption at every point.
func TestCloseInterrupted(t *testing.T) {
	t.Parallel()
	for at := 1; ; at += stride(6) {
		root := installedNode(t)
		h := nodefs.Host{Root: root}
		before := stat(t, h, v1alpha1.DefaultServerKubeconfig)
		chmod(t, h, v1alpha1.DefaultServerKubeconfig, 0o644)
		o := testOptions(root)
		point := stopAt(t, &o, at, func() error { _, err := Install(t.Context(), o); return err })
		install(t, root)
		closed(t, h, v1alpha1.DefaultServerKubeconfig, before)
		if point == "" {
			break
		}
	}
}

// TestFileGoesMeanwhile checks that a manifest or certificate which disappears
// between two reads is an error, not a panic.
func TestFileGoesMeanwhile(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	n := newNode(testOptions(root).defaulted())
	if err := n.readManifest(); err != nil {
		t.Fatal(err)
	}
	remove(t, n.Host, apiServerFile)
	p := newPlanner(n, &journal.Journal{}, &State{})
	p.planAPIServer()
	n.state = &State{Bundle: v1alpha1.New()}
	_, err := p.takeAwayManifest()
	for _, err := range []error{p.Err(), err} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), apiServerFile) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if nodefs.ModeOf("") != 0o600 || nodefs.ModeOf("0123-0644") != 0o644 {
		t.Error("modeOf")
	}
}
