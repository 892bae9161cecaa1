// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmconstants "k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubeconfig"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// kubeadmNode lets kubeadm's own code make the files of a control plane node
// below dir: certificates, kubeconfigs and kube-apiserver's manifest.
func kubeadmNode(dir string, change func(*kubeadmapi.InitConfiguration)) error {
	config, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		return err
	}
	config.NodeRegistration.Name, config.KubernetesVersion = "node-1", "v1.36.3"
	if change != nil {
		change(config)
	}
	at := nodefs.Host{Root: dir}
	stdout := os.Stdout
	os.Stdout, _ = os.Open(os.DevNull) // kubeadm talks
	defer func() { os.Stdout = stdout }()
	config.CertificatesDir = at.Path("/etc/kubernetes/pki")
	if err := certs.CreatePKIAssets(config); err != nil {
		return err
	}
	for _, name := range []string{kubeadmconstants.AdminKubeConfigFileName, kubeadmconstants.KubeletKubeConfigFileName} {
		if err := kubeconfig.CreateKubeConfigFile(name, at.Path("/etc/kubernetes"), config); err != nil {
			return err
		}
	}
	config.CertificatesDir = "/etc/kubernetes/pki"
	return controlplane.CreateStaticPodFiles(at.Path("/etc/kubernetes/manifests"), "", &config.ClusterConfiguration,
		&config.LocalAPIEndpoint, false, apiServer)
}

// newBundle is the default bundle with keys that take little time to make.
func newBundle() *v1alpha1.Bundle {
	b := v1alpha1.New()
	b.PKI.Algorithm = v1alpha1.KeyECDSAP256
	return b
}

// anotherNode returns the files of a node of another cluster, the same for all tests.
func anotherNode(t *testing.T) string {
	t.Helper()
	anotherOnce.Do(func() {
		dir := filepath.Join(filepath.Dir(pristine), "another")
		if err := kubeadmNode(dir, nil); err != nil {
			t.Fatal(err)
		}
		another = dir
	})
	return another
}

var (
	another     string
	anotherOnce sync.Once
)

// testNode is a copy of a node that kubeadm has made.
func testNode(t *testing.T) string {
	t.Helper()
	return nodeFrom(t, pristine)
}

func nodeFrom(t *testing.T, tree string) string {
	t.Helper()
	root := t.TempDir() + "/node"
	copyTree(t, tree, root)
	return root
}

// snapshot is every file below root with mode and content.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, root)
		if d.IsDir() {
			out[rel+"/"] = info.Mode().String()
			return nil
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			out[rel], err = os.Readlink(name)
			return err
		}
		data, err := os.ReadFile(name)
		out[rel] = fmt.Sprintf("%s\n%s", info.Mode(), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTrees(t *testing.T, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// complete fails unless the tunnel is installed below root as the bundle says:
// every file byte by byte, but for those with keys, which are checked for what
// they are good for.
func complete(t *testing.T, root string) {
	t.Helper()
	h := nodefs.Host{Root: root}
	got := snapshot(t, root)
	for name, want := range installed {
		switch {
		case strings.HasSuffix(name, "konnectivity-server.conf"), strings.HasSuffix(name, "apiserver.crt"), strings.HasPrefix(name, StateDir):
			if mode, _, _ := strings.Cut(want, "\n"); !strings.HasPrefix(got[name], mode) {
				t.Errorf("%s is %.10s, want %s", name, got[name], mode)
			}
		case name == serverFile: // a renewal may have restarted the server
			mode, text, _ := strings.Cut(want, "\n")
			if nowMode, now, _ := strings.Cut(got[name], "\n"); mode != nowMode || sameServer([]byte(text))([]byte(now)) != nil {
				t.Errorf("%s is not as after an undisturbed installation:\n%s", name, cmp.Diff(want, got[name]))
			}
		case got[name] != want:
			t.Errorf("%s is not as after an undisturbed installation:\n%s", name, cmp.Diff(want, got[name]))
		}
	}
	for name := range got {
		if _, wanted := installed[name]; !wanted {
			t.Errorf("%s was left over", name)
		}
	}
	n := newNode(testOptions(root).defaulted())
	if data, err := h.Read(v1alpha1.DefaultServerKubeconfig); err != nil || n.certs().CheckServerKubeconfig(data) != nil {
		t.Errorf("kubeconfig: %v, %v", err, n.certs().CheckServerKubeconfig(data))
	}
	data, err := h.Read("/etc/kubernetes/pki/apiserver.crt")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCert(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"konnectivity-server.kube-system.svc", "kubernetes.default.svc", "node-1"} {
		if err := cert.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if err := n.certs().VerifyChain(cert, x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
}

// copyTree copies files, directories and links with their modes. It starts no program: until that runs, it has a copy of each
// open file of this one, and so the lock of a run of another test.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(name, from))
		if info.Mode()&fs.ModeSymlink != 0 {
			link, err := os.Readlink(name)
			return errors.Join(err, os.Symlink(link, target))
		}
		if d.IsDir() {
			err = os.MkdirAll(target, 0o700)
		} else {
			var data []byte
			if data, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(target, data, 0o600)
			}
		}
		return errors.Join(err, os.Chmod(target, info.Mode()))
	})
	if err != nil {
		t.Fatal(err)
	}
}
