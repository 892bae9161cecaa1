// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"archive/tar"
	"bytes"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// unitFiles are systemd units and the scripts that they run in nodes.
//
//go:embed node
var unitFiles embed.FS

// dropIn is a systemd drop-in that makes containerd and kubelet want this
// package's units, and start after the unit that unpacks the files.
const dropIn = "20-fairlead.conf"

// units returns the systemd units of a node; their scripts are in the same
// directory.
func (p *plan) units() []string {
	list := []string{"fairlead-files.service"}
	if len(p.load) > 0 {
		list = append(list, "fairlead-images.service")
	}
	if p.state.OwnPodNetwork {
		list = append(list, "fairlead-network.service")
	}
	return list
}

// writeMaterial writes the files that nodes mount, and returns the CA that
// kubeadm will use. Nodes read the files as root. No other user can, because the
// state directory is private.
func (p *plan) writeMaterial(now time.Time) (pki.KeyPair, error) {
	ca, err := pki.NewCA(pki.FromBundle(p.bundle), "kubernetes", now)
	if err != nil {
		return ca, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return ca, err
	}
	files := []bundle.File{
		{Path: filepath.Join(p.PKIDir(), "ca.crt"), Mode: 0o644, Data: ca.CertPEM()},
		{Path: filepath.Join(p.PKIDir(), "ca.key"), Mode: 0o600, Data: key},
	}
	for _, write := range []func() ([]bundle.File, error){p.unitFiles, func() ([]bundle.File, error) { return p.nodeFiles(ca, now) }, p.configFiles} {
		more, err := write()
		if err != nil {
			return ca, err
		}
		files = append(files, more...)
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return ca, fmt.Errorf("creating the cluster's directories: %w", err)
		}
		if err := fsutil.WriteFile(f.Path, f.Data, os.FileMode(f.Mode)); err != nil {
			return ca, err
		}
	}
	return ca, p.StoreBundle(p.bundle)
}

func (p *plan) configFiles() ([]bundle.File, error) {
	data, err := p.configYAML()
	return []bundle.File{{Path: p.kindConfigFile(), Mode: 0o600, Data: data}}, err
}

// unitFiles returns all files of directory node: a unit that is not mounted does
// nothing.
func (p *plan) unitFiles() ([]bundle.File, error) {
	entries, err := unitFiles.ReadDir("node")
	if err != nil {
		return nil, err
	}
	var files []bundle.File
	for _, e := range entries {
		data, err := unitFiles.ReadFile(path.Join("node", e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, bundle.File{Path: filepath.Join(p.unitDir(), e.Name()), Mode: 0o644, Data: data})
	}
	return files, nil
}

// nodeFiles returns the files of the directories that each node mounts
// separately.
func (p *plan) nodeFiles(ca pki.KeyPair, now time.Time) ([]bundle.File, error) {
	own, err := bundle.Encode(p.bundle) // for "fairlead controlplane" in the node
	if err != nil {
		return nil, err
	}
	var files []bundle.File
	for _, n := range p.nodes() {
		contents, err := p.contents(n, ca, now)
		if err != nil {
			return nil, err
		}
		archive, err := rootArchive(contents, p.privateDirs(n), now)
		if err != nil {
			return nil, err
		}
		files = append(files,
			bundle.File{Path: filepath.Join(p.nodeDir(n), "files.tar"), Mode: 0o600, Data: archive},
			bundle.File{Path: filepath.Join(p.nodeDir(n), "network"), Mode: 0o600, Data: p.networkFile(n)})
		if n.controlPlane {
			files = append(files, bundle.File{Path: filepath.Join(p.nodeDir(n), path.Base(controlplane.ProvidedBundle)), Mode: 0o600, Data: own})
		}
	}
	return files, nil
}

// contents returns the files that a node gets copies of, with their paths in the
// node. The server's kubeconfig comes before its manifest: otherwise the
// manifest's FileOrCreate mount would create an empty file.
func (p *plan) contents(n node, ca pki.KeyPair, now time.Time) ([]bundle.File, error) {
	discovery, err := p.discoveryFile(ca.CertPEM())
	if err != nil {
		return nil, err
	}
	files := []bundle.File{{Path: discoveryPath, Mode: 0o600, Data: discovery}}
	if p.state.OwnPodNetwork {
		data, err := podNetwork(n)
		if err != nil {
			return nil, err
		}
		files = append(files, bundle.File{Path: conflistPath, Mode: 0o644, Data: data})
	}
	if !n.controlPlane || !p.tunnel() {
		return files, nil
	}
	out, err := bundle.Render(p.bundle)
	if err != nil {
		return nil, err
	}
	// Each server connects to the API server on its own node, so that one
	// control plane node does not depend on another.
	kubeconfig, err := konnectivity.ServerKubeconfig(p.bundle, ca, loopbackURL(nodePort), now)
	if err != nil {
		return nil, err
	}
	files = append(files, bundle.File{Path: p.bundle.Konnectivity.Server.Kubeconfig, Mode: 0o600, Data: kubeconfig})
	gatewayFiles, err := p.gatewayFiles(ca, loopbackURL(nodePort), out, now)
	if err != nil {
		return nil, err
	}
	return slices.Concat(files, out.HostFiles, gatewayFiles), nil
}

// privateDirs returns the directories that only root may enter: the static Pod
// directory, as kubeadm creates it, and the socket's directory.
func (p *plan) privateDirs(n node) []string {
	if !n.controlPlane || !p.tunnel() {
		return nil
	}
	return []string{p.bundle.ControlPlane.ManifestsDir, path.Dir(p.bundle.Konnectivity.Transport.UDS.Path)}
}

// rootArchive returns a tar archive of files that belong to root, with their
// directories.
func rootArchive(files []bundle.File, private []string, now time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := []string{"/"}
	addDirs := func(dir string) error {
		for _, dir := range missingDirs(dir, made) {
			mode := int64(0o755)
			if slices.Contains(private, dir) {
				mode = 0o700
			}
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: inArchive(dir) + "/", Mode: mode, ModTime: now}); err != nil {
				return err
			}
			made = append(made, dir)
		}
		return nil
	}
	for _, dir := range private {
		if err := addDirs(dir); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := addDirs(path.Dir(f.Path)); err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: inArchive(f.Path), Mode: int64(f.Mode), Size: int64(len(f.Data)), ModTime: now}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// missingDirs returns dir and its parents, from the top, without those that were
// already added.
func missingDirs(dir string, made []string) []string {
	var list []string
	for ; !slices.Contains(made, dir); dir = path.Dir(dir) {
		list = append([]string{dir}, list...)
	}
	return list
}

func inArchive(p string) string { return strings.TrimPrefix(p, "/") }
