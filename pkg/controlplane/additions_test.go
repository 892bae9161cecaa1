// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// joinedManifest returns kube-apiserver's manifest as "kubeadm join" and "kubeadm
// upgrade node" write it if kubeadm's stored configuration has the tunnel.
func joinedManifest(t *testing.T) string {
	t.Helper()
	patch, err := apiserver.KubeadmPatch(v1alpha1.New())
	if err != nil {
		t.Fatal(err)
	}
	stored, err := kubeadmconfig.BytesToInitConfiguration(patch, true)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "joined")
	err = kubeadmNode(dir, func(c *kubeadmapi.InitConfiguration) {
		c.APIServer.ExtraArgs, c.APIServer.ExtraVolumes = stored.APIServer.ExtraArgs, stored.APIServer.ExtraVolumes
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := nodefs.Host{Root: dir}.Read(apiServerFile)
	if err != nil || !strings.Contains(string(data), "--"+apiserver.ConfigFlag+"=") {
		t.Fatalf("%v\n%s", err, data)
	}
	return string(data)
}

// egressFile writes the egress selector configuration, which must be on a node before
// it joins.
func egressFile(t *testing.T, h nodefs.Host) {
	t.Helper()
	out, err := bundle.Render(v1alpha1.New())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out.HostFiles {
		if f.Path == v1alpha1Egress {
			put(t, h, f.Path, string(f.Data))
		}
	}
}

// starts fails unless the kubelet could start kube-apiserver: the paths that its
// manifest mounts and the tunnel's files that it names must exist.
func starts(t *testing.T, h nodefs.Host) {
	t.Helper()
	data, err := h.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathDirectory && !h.Exists(v.HostPath.Path) {
			t.Errorf("kube-apiserver mounts %s, which is not there", v.HostPath.Path)
		}
	}
	for _, f := range manifests.NamedBy(pod) {
		if strings.Contains(f, "konnectivity") && !h.Exists(f) {
			t.Errorf("kube-apiserver names %s, which is not there", f)
		}
	}
	if selector := manifests.EgressSelector(pod); selector != "" && !h.Exists(serverFile) {
		t.Errorf("kube-apiserver has %s, and no server is there", selector)
	}
}

// sameManifest fails unless kube-apiserver's manifest is kubeadm's without a tunnel.
func sameManifest(t *testing.T, h nodefs.Host) {
	t.Helper()
	want, err := nodefs.Host{Root: pristine}.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Read(apiServerFile); err != nil || string(got) != string(want) {
		t.Errorf("%v, the manifest is\n%s", err, got)
	}
}

// TestUninstallWhereKubeadmWroteTheFlag checks that the flag is removed together with
// the files it names, even if it was in the manifest before the installation or was
// added after it.
func TestUninstallWhereKubeadmWroteTheFlag(t *testing.T) {
	joined := joinedManifest(t)
	serverOnly := func(t *testing.T, root string) {
		o := testOptions(root)
		o.ServerOnly = true
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, root string)
		// stay lists files that existed before the installation, and stay.
		stay []string
	}{
		"joined": {func(t *testing.T, root string) {
			egressFile(t, nodefs.Host{Root: root})
			put(t, nodefs.Host{Root: root}, apiServerFile, joined)
			install(t, root)
		}, []string{v1alpha1Egress}},
		"joined, server only": {func(t *testing.T, root string) {
			egressFile(t, nodefs.Host{Root: root})
			put(t, nodefs.Host{Root: root}, apiServerFile, joined)
			serverOnly(t, root)
		}, []string{v1alpha1Egress}},
		"upgraded after server only": {func(t *testing.T, root string) {
			serverOnly(t, root)
			put(t, nodefs.Host{Root: root}, apiServerFile, joined)
		}, nil},
		"upgraded and installed": {func(t *testing.T, root string) {
			serverOnly(t, root)
			put(t, nodefs.Host{Root: root}, apiServerFile, joined)
			install(t, root)
		}, nil},
		"state lost": {func(t *testing.T, root string) {
			install(t, root)
			if err := os.RemoveAll(nodefs.Host{Root: root}.Path(StateDir)); err != nil {
				t.Fatal(err)
			}
			install(t, root)
		}, []string{serverFile, v1alpha1.DefaultServerKubeconfig, v1alpha1Egress}},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			h := nodefs.Host{Root: root}
			tc.prepare(t, root)
			r := uninstall(t, root)
			sameManifest(t, h)
			starts(t, h)
			if !slices.Contains(r.Files, apiServerFile) || r.EgressSelector != "" || len(r.Left) != len(tc.stay) {
				t.Errorf("%+v, want %v left", r, tc.stay)
			}
			for _, f := range tc.stay {
				if !h.Exists(f) || !slices.ContainsFunc(r.Left, func(l string) bool { return strings.HasPrefix(l, f+": ") }) {
					t.Errorf("%s was there before: it is to stay, and to be named: %v", f, r.Left)
				}
			}
		})
	}
}

// TestOtherBundleWhereKubeadmWroteTheFlag checks that a second bundle replaces what
// kubeadm wrote for the first one.
func TestOtherBundleWhereKubeadmWroteTheFlag(t *testing.T) {
	root := testNode(t)
	h := nodefs.Host{Root: root}
	egressFile(t, h)
	put(t, h, apiServerFile, joinedManifest(t))
	install(t, root)
	o := testOptions(root)
	o.Bundle = newBundle()
	o.Bundle.ControlPlane.EgressSelectorFile = "/etc/kubernetes/other/egress.yaml"
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	starts(t, h)
	uninstall(t, root)
	sameManifest(t, h)
}

func renameVolume(t *testing.T, h nodefs.Host) {
	t.Helper()
	for range 2 { // mount and volume
		replaceIn(t, h, apiServerFile, "name: "+apiserver.VolumeConfig+"\n", "name: mine\n")
	}
}

// TestUninstallAfterRenamedVolume checks that a directory which kube-apiserver's
// manifest still mounts stays.
func TestUninstallAfterRenamedVolume(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	renameVolume(t, h)
	r := uninstall(t, root)
	starts(t, h)
	if r.EgressSelector != "" || len(r.Left) != 1 || !strings.HasPrefix(r.Left[0], filepath.Dir(v1alpha1Egress)+": ") {
		t.Errorf("%+v, want the directory left", r)
	}
}

// TestRollbackAfterRenamedVolume checks the same for a rollback.
func TestRollbackAfterRenamedVolume(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	if _, err := Install(t.Context(), failingOptions(root, func() { renameVolume(t, h) })); !errors.Is(err, ErrRolledBack) {
		t.Fatal(err)
	}
	starts(t, h)
}

// TestFlagWrittenInAnotherWay checks that the error names what cannot be removed
// safely, and that nothing changes. A rollback keeps what the flag needs.
func TestFlagWrittenInAnotherWay(t *testing.T) {
	t.Parallel()
	rewrite := func(h nodefs.Host) {
		replaceIn(t, h, apiServerFile, "    - --"+apiserver.ConfigFlag+"=", "    - --"+apiserver.ConfigFlag+"\n    - ")
	}
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	rewrite(h)
	before := snapshot(t, root)
	_, err := Uninstall(t.Context(), testOptions(root))
	if !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), v1alpha1Egress) || !strings.Contains(err.Error(), "remove the entry") {
		t.Errorf("%v, want ErrPreflight that names the file", err)
	}
	sameTrees(t, before, snapshot(t, root))

	root = testNode(t)
	h = nodefs.Host{Root: root}
	_, err = Install(t.Context(), failingOptions(root, func() { rewrite(h) }))
	if !errors.Is(err, journal.ErrEdited) || !strings.Contains(err.Error(), v1alpha1Egress) {
		t.Errorf("%v, want the file named that the manifest needs", err)
	}
	starts(t, h)
}

// TestUninstallWithEditedServer checks that an edited server manifest is removed like
// any other, as the server could not run without the files that it mounts. A copy
// stays.
func TestUninstallWithEditedServer(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	replaceIn(t, h, serverFile, "  containers:\n", "  # mine\n  containers:\n")
	edited, err := h.Read(serverFile)
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	o, broken := testOptions(root), true
	o.waits = func(context.Context, *kubelet.Program) error {
		if broken {
			broken = false
			return errors.New("no answer")
		}
		return nil
	}
	if _, err := Uninstall(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Errorf("%v, want ErrRolledBack", err)
	}
	sameTrees(t, before, snapshot(t, root))
	r := uninstall(t, root)
	if len(r.Left) != 1 || !strings.HasPrefix(r.Left[0], serverFile+": ") {
		t.Fatalf("left %v, want the server's manifest", r.Left)
	}
	name := r.Left[0][strings.LastIndex(r.Left[0], " ")+1:]
	if data, err := h.Read(name); err != nil || string(data) != string(edited) {
		t.Errorf("the copy: %v\n%s", err, data)
	}
	if _, err := Uninstall(t.Context(), testOptions(root)); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("again: %v, want ErrNotInstalled", err)
	}
	if err := os.RemoveAll(h.Path(StateDir)); err != nil {
		t.Fatal(err)
	}
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestUninstallWithServerOfSomebodyElse checks that a server which was there before
// the installation stays, with what it needs.
func TestUninstallWithServerOfSomebodyElse(t *testing.T) {
	t.Parallel()
	reference(t)
	root := testNode(t)
	h := nodefs.Host{Root: root}
	_, manifest, _ := strings.Cut(installed[serverFile], "\n")
	put(t, h, serverFile, manifest)
	install(t, root)
	r := uninstall(t, root)
	for _, f := range []string{serverFile, v1alpha1.DefaultServerKubeconfig} {
		if !h.Exists(f) || !slices.ContainsFunc(r.Left, func(l string) bool { return strings.HasPrefix(l, f+": ") }) {
			t.Errorf("%s is to stay, and to be named: %v", f, r.Left)
		}
	}
	sameManifest(t, h)
}
