// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// upstream is a bundle with the server of the Kubernetes project, which reads its files only
// when it starts.
func upstream() *v1alpha1.Bundle {
	b := newBundle()
	b.Konnectivity.Server.Image = "registry.k8s.io/kas-network-proxy/proxy-server:v0.34.0"
	return b
}

// readyMade makes a kubeconfig of the server, for --server-kubeconfig.
func readyMade(t *testing.T, root, server string) string {
	t.Helper()
	ca, err := newNode(testOptions(root).defaulted()).certs().Authority("", "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := konnectivity.ServerKubeconfig(nil, ca.KeyPair, server, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ready.conf")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func yearLater() time.Time { return time.Now().AddDate(1, 2, 0) }

// newFiles are installations over an earlier one that give the server new files and leave its
// manifest as it is.
var newFiles = map[string]struct {
	change func(t *testing.T, root string, o *Options)
	// gone: the server's kubeconfig was moved away.
	gone bool
	// restarts: this project's server is restarted, too.
	restarts bool
	files    []string
}{
	"expired": {change: func(_ *testing.T, _ string, o *Options) { o.Now = yearLater }, files: []string{v1alpha1.DefaultServerKubeconfig}},
	"ready-made": {change: func(t *testing.T, root string, o *Options) {
		o.ServerKubeconfig = readyMade(t, root, "https://"+apiServerAddress(t, root))
	}, files: []string{v1alpha1.DefaultServerKubeconfig}},
	"ready-made for another API server": {change: func(t *testing.T, root string, o *Options) {
		o.ServerKubeconfig = readyMade(t, root, "https://192.0.2.1:6443")
	}, restarts: true, files: []string{v1alpha1.DefaultServerKubeconfig}},
	"moved away": {change: func(t *testing.T, root string, _ *Options) {
		remove(t, nodefs.Host{Root: root}, v1alpha1.DefaultServerKubeconfig)
	}, gone: true, restarts: true, files: []string{v1alpha1.DefaultServerKubeconfig}},
	"another name": {change: func(_ *testing.T, _ string, o *Options) { o.Bundle.Konnectivity.ServerHost = "other.example.com" }, files: []string{servingCert}},
}

func apiServerAddress(t *testing.T, root string) string {
	t.Helper()
	n := newNode(testOptions(root).defaulted())
	if err := n.readManifest(); err != nil {
		t.Fatal(err)
	}
	return n.address
}

// TestNewFilesOfRunningServer checks that an installation writes a new kubeconfig into the
// existing file, because the server has mounted that as a single file, and that it restarts
// a server that does not read new files by itself. Another installation changes nothing.
func TestNewFilesOfRunningServer(t *testing.T) {
	t.Parallel()
	for name, tc := range newFiles {
		for image, bundle := range map[string]func() *v1alpha1.Bundle{"own image": newBundle, "upstream's image": upstream} {
			t.Run(name+", "+image, func(t *testing.T) {
				root := testNode(t)
				h := nodefs.Host{Root: root}
				o := withBundle(root, bundle())
				mustInstall(t, o)
				before := stat(t, h, v1alpha1.DefaultServerKubeconfig)
				tc.change(t, root, &o)
				want := slices.Clone(tc.files)
				if tc.restarts || image != "own image" {
					want = append(want, serverFile)
				}
				r, err := Install(t.Context(), o)
				if err != nil || !slices.Equal(r.Files, want) {
					t.Errorf("%v: %v were changed, want %v", err, r.Files, want)
				}
				after := stat(t, h, v1alpha1.DefaultServerKubeconfig)
				if after.Mode() != 0o600 || !tc.gone && !os.SameFile(before, after) {
					t.Errorf("the kubeconfig is another file, which the server does not see, or has another mode: %v", after)
				}
				if again, err := Install(t.Context(), o); err != nil || again.Changed {
					t.Errorf("again: %+v, %v", again, err)
				}
				mustUninstall(t, testOptions(root))
				sameTrees(t, snapshot(t, pristine), snapshot(t, root))
			})
		}
	}
}

// TestRollbackOfNewKubeconfig checks that a rollback writes the old kubeconfig into the same
// file.
func TestRollbackOfNewKubeconfig(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	o := withBundle(root, upstream())
	mustInstall(t, o)
	before, file := snapshot(t, root), stat(t, h, v1alpha1.DefaultServerKubeconfig)
	failed := false
	o.Now, o.waits = yearLater, func(_ context.Context, p *kubelet.Program) error {
		if failed {
			return nil
		}
		failed = true
		return errors.New("no answer of " + p.Name)
	}
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Errorf("%v, want ErrRolledBack", err)
	}
	sameTrees(t, before, snapshot(t, root))
	if now := stat(t, h, v1alpha1.DefaultServerKubeconfig); !os.SameFile(file, now) {
		t.Error("the kubeconfig is another file")
	}
}

// TestInstallAfterRestart checks that an installation does not restart the server only because
// a renewal did.
func TestInstallAfterRestart(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	o := withBundle(root, upstream())
	mustInstall(t, o)
	if r := renew(t, RenewOptions{Options: o}); !r.Restarted {
		t.Errorf("%+v", r)
	}
	if r, err := Install(t.Context(), o); err != nil || r.Changed {
		t.Errorf("%+v, %v; want nothing to do", r, err)
	}
	mustUninstall(t, testOptions(root))
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}
