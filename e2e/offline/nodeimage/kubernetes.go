// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// Programs of a node, by where they come from. Those of the control plane become images, see images.go.
var (
	nodePrograms       = []string{"kubelet", "kubeadm", "kubectl"}
	controlPlane       = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
	containerdPrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	cniPlugins         = []string{"host-local", "loopback", "portmap", "ptp"}
)

// containerdTags leave out snapshotters that kind never selects.
const containerdTags = "no_aufs no_zfs no_btrfs no_devmapper"

// buildKubernetes makes the stage with the node's programs and the control plane's images.
func (b *builder) buildKubernetes(ctx context.Context, below, tag string) error {
	programs, err := b.compile(ctx)
	if err != nil {
		return err
	}
	return b.inContainer(ctx, below, tag, func(c container) error {
		if err := b.step("Adding Kubernetes "+components.KubernetesVersion()+" and containerd to the node", func() error {
			return addPrograms(ctx, c, programs)
		}); err != nil {
			return err
		}
		return b.step("Importing the control plane's images", func() error {
			return importKubernetesImages(ctx, c, programs)
		})
	})
}

// compile builds all programs and returns their paths by name.
func (b *builder) compile(ctx context.Context) (map[string]string, error) {
	programs, err := binaries.Components(ctx, binaries.Options{}, slices.Concat(nodePrograms, controlPlane), b.progress)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(b.workDir, "programs")
	for _, build := range []struct {
		title, dir string
		args       []string
	}{
		{"Building containerd, CoreDNS and the CNI plugins", programsDir, []string{"-mod=readonly", "-tags", containerdTags, "tool", "./coredns"}},
		{"Building what stands in for images of registries", moduleDir, []string{"./nodeimage/cmd/..."}},
	} {
		if err := b.step(build.title, func() error {
			args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out + "/"}, build.args...)
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			_, err := goTool(ctx, build.dir, args...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		programs[entry.Name()] = filepath.Join(out, entry.Name())
	}
	return programs, nil
}

// addPrograms adds the programs and files that need no containerd to the node.
func addPrograms(ctx context.Context, c container, programs map[string]string) error {
	var files []imagetar.File
	for dir, names := range map[string][]string{"usr/bin": nodePrograms, "usr/local/bin": containerdPrograms, "opt/cni/bin": cniPlugins} {
		for _, name := range names {
			path, ok := programs[name]
			if !ok {
				return fmt.Errorf("no program is called %s; there are %v", name, slices.Sorted(maps.Keys(programs)))
			}
			files = append(files, imagetar.File{Name: dir + "/" + name, Mode: 0o755, Source: path})
		}
	}
	manifests, err := manifestFiles()
	if err != nil {
		return err
	}
	// Kind reads the file as it is: no newline.
	files = append(files, imagetar.File{Name: "kind/version", Data: []byte(components.KubernetesVersion())})
	layer, err := imagetar.Files(append(files, manifests...)...)
	if err != nil {
		return err
	}
	if err := c.add(ctx, layer); err != nil {
		return err
	}
	// As in kind's Dockerfile.
	_, err = c.sh(ctx, `ctr oci spec |
  jq '.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"}' |
  jq 'del(.process.rlimits)' >/etc/containerd/cri-base.json`)
	return err
}

// importKubernetesImages imports the images that kubeadm lists, and the others that pods need, into
// containerd's store.
func importKubernetesImages(ctx context.Context, c container, programs map[string]string) error {
	out, err := exec.CommandContext(ctx, programs["kubeadm"], "config", "images", "list", "--kubernetes-version", components.KubernetesVersion()).Output()
	if err != nil {
		return fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	config, err := c.sh(ctx, "cat /etc/containerd/config.toml")
	if err != nil {
		return err
	}
	userland, err := networkUserland(ctx, c, programs["xtables"])
	if err != nil {
		return err
	}
	busybox, err := c.file(ctx, "/bin/busybox")
	if err != nil {
		return err
	}
	images, err := kubernetesImages(strings.Fields(string(out)), sandboxImage(config), programs, userland, busybox)
	if err != nil {
		return err
	}
	return c.withContainerd(ctx, func() error {
		for _, img := range images {
			if err := c.importImage(ctx, img.Image, img.more...); err != nil {
				return err
			}
		}
		return nil
	})
}
