// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

type entry struct {
	header tar.Header
	data   []byte
}

// unpacked returns the entries of a node's archive, in order.
func unpacked(t *testing.T, p *plan, n node) []entry {
	t.Helper()
	ca, err := pki.NewCA(pki.FromBundle(p.bundle), "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files, err := p.contents(n, ca, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	data, err := rootArchive(files, p.privateDirs(n), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var list []entry
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{*h, content})
	}
}

func find(t *testing.T, list []entry, name string) (int, entry) {
	t.Helper()
	for i, e := range list {
		if "/"+strings.TrimSuffix(e.header.Name, "/") == name {
			return i, e
		}
	}
	t.Fatalf("no %s in the archive", name)
	return 0, entry{}
}

// Everything belongs to root. The kubeconfig has mode 0600 and comes before the
// manifest, and it embeds its certificate and key, so the node has no loose ones.
// Only root may enter the directories of sockets and manifests.
func TestControlPlaneFiles(t *testing.T) {
	p := newTestPlan(t, "")
	list := unpacked(t, p, p.nodes()[1])
	for _, e := range list {
		if e.header.Uid != 0 || e.header.Gid != 0 || path.IsAbs(e.header.Name) {
			t.Errorf("%s belongs to %d:%d", e.header.Name, e.header.Uid, e.header.Gid)
		}
	}
	kubeconfigAt, kubeconfig := find(t, list, v1alpha1.DefaultServerKubeconfig)
	manifestAt, _ := find(t, list, v1alpha1.DefaultManifestsDir+"/konnectivity-server.yaml")
	if kubeconfig.header.Mode != 0o600 || kubeconfigAt > manifestAt {
		t.Errorf("kubeconfig: mode %o, entry %d; the manifest is entry %d", kubeconfig.header.Mode, kubeconfigAt, manifestAt)
	}
	find(t, list, v1alpha1.DefaultEgressSelectorFile)
	for _, dir := range []string{v1alpha1.DefaultManifestsDir, path.Dir(v1alpha1.DefaultSocket)} {
		if _, e := find(t, list, dir); e.header.Mode != 0o700 || e.header.Typeflag != tar.TypeDir {
			t.Errorf("%s: mode %o", dir, e.header.Mode)
		}
	}
	config, err := clientcmd.Load(kubeconfig.data)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		if c.Server != "https://127.0.0.1:6443" {
			t.Errorf("a server asks %s, not the API server beside it", c.Server)
		}
	}
}

// A worker has no secret.
func TestWorkerFiles(t *testing.T) {
	p := newTestPlan(t, "")
	for _, e := range unpacked(t, p, p.nodes()[3]) {
		if strings.Contains(e.header.Name, "kubernetes") || bytes.Contains(e.data, []byte("PRIVATE KEY")) {
			t.Errorf("a worker has %s", e.header.Name)
		}
	}
}

// The Pod network of a node has its own range, and routes to the ranges of its
// peers.
func TestPodNetwork(t *testing.T) {
	p := newTestPlan(t, "")
	n := p.nodes()[4]
	_, e := find(t, unpacked(t, p, n), conflistPath)
	var list conflist
	if err := json.Unmarshal(e.data, &list); err != nil || len(list.Plugins) != 2 {
		t.Fatalf("%v in %s", err, e.data)
	}
	if !bytes.Contains(e.data, []byte("10.244.4.0/24")) {
		t.Errorf("not the node's range: %s", e.data)
	}
	file := string(p.networkFile(n))
	if !strings.Contains(file, "own 10.244.4.0/24\n") || strings.Count(file, "peer ") != 4 || !strings.Contains(file, "service 10.96.0.1\n") || !strings.Contains(file, "peer 10.244.0.0/24 fairlead-dev-control-plane\n") {
		t.Errorf("got\n%s", file)
	}
}

// bash can parse the scripts.
func TestScripts(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := unitFiles.ReadDir("node")
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for _, e := range entries {
		if path.Ext(e.Name()) != ".sh" {
			continue
		}
		scripts++
		data, err := unitFiles.ReadFile("node/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(bash, "-n")
		cmd.Stdin = bytes.NewReader(data)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s", e.Name(), out)
		}
	}
	if scripts != 3 {
		t.Errorf("%d scripts", scripts)
	}
}

// Control plane nodes have the bundle they were created from where "fairlead
// controlplane" looks for it.
func TestNodesKnowTheirBundle(t *testing.T) {
	p := newTestPlan(t, "")
	ca, err := pki.NewCA(pki.FromBundle(p.bundle), "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files, err := p.nodeFiles(ca, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.nodes() {
		inNode := strings.Replace(controlplane.ProvidedBundle, mountedDir, p.nodeDir(n), 1)
		i := slices.IndexFunc(files, func(f bundle.File) bool { return f.Path == inNode })
		if i >= 0 != n.controlPlane {
			t.Errorf("node %s has a bundle: %v", n.name, i >= 0)
		}
		if i < 0 {
			continue
		}
		if b, err := bundle.Load(files[i].Data); err != nil || !reflect.DeepEqual(b, p.bundle) {
			t.Errorf("node %s: %+v, %v", n.name, b, err)
		}
	}
}
