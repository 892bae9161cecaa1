// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TestLinkedDirectories installs on a node whose directories are absolute symbolic links: they mean directories of the node.
func TestLinkedDirectories(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	link := func(name, to string) {
		t.Helper()
		from := filepath.Join(root, name)
		err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755), os.Rename(from, filepath.Join(root, to)), os.Symlink(to, from))
		if err != nil {
			t.Fatal(err)
		}
	}
	link("/etc/kubernetes/manifests", "/data/manifests")
	link("/etc/kubernetes", "/data/kubernetes")
	before := snapshot(t, root)
	install(t, root)
	for _, name := range []string{"/data/manifests/konnectivity-server.yaml", "/data/kubernetes/" + filepath.Base(v1alpha1.DefaultServerKubeconfig)} {
		if !h.Exists(name) {
			t.Errorf("%s is missing", name)
		}
	}
	between := snapshot(t, root)
	install(t, root)
	sameTrees(t, between, snapshot(t, root))
	uninstall(t, root)
	sameTrees(t, before, snapshot(t, root))
}
