// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

func kindDir(t *testing.T) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", nodeimage.KindModule)
	list.Dir = root // the module that pins kind
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Kind's own files on an empty system: the result is that of kind's Dockerfile.
func TestKindFiles(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"etc/systemd/journald.conf": "[Journal]\n", "lib/systemd/system/multi-user.target.wants/getty.target": "", "lib/systemd/system/basic.target.wants/x": "",
		"etc/systemd/system/sockets.target.wants/y": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := addKindFiles(root, kindDir(t)); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{
		"usr/local/bin/entrypoint": 0o755, "kind/bin/mount-product-files.sh": 0o755, "kind/bin/restrict-oom-score.sh": 0o755,
		"etc/containerd/config.toml": 0o644, "etc/systemd/system/kubelet.service": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	for _, gone := range []string{"lib/systemd/system/multi-user.target.wants/getty.target", "lib/systemd/system/basic.target.wants/x", "etc/systemd/system/sockets.target.wants/y"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still wanted", gone)
		}
	}
	for link, want := range map[string]string{
		"etc/systemd/system/multi-user.target.wants/kubelet.service": "/etc/systemd/system/kubelet.service",
		"etc/systemd/system/systemd-binfmt.service":                  "/dev/null",
	} {
		if got, err := os.Readlink(filepath.Join(root, link)); err != nil || got != want {
			t.Errorf("%s -> %s, %v", link, got, err)
		}
	}
	config, err := os.ReadFile(filepath.Join(root, "etc/containerd/config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if image := sandboxImage(string(config)); !strings.HasPrefix(image, "registry.k8s.io/pause:") {
		t.Errorf("the pause image of kind's configuration is %q", image)
	}
	// The first script edits this line where CAP_SYS_RESOURCE is missing.
	if !strings.Contains(string(config), "restrict_oom_score_adj = false") {
		t.Error("kind's containerd configuration has changed: restrict-oom-score.sh finds nothing to edit")
	}
}

func TestBalancerImageOfKind(t *testing.T) {
	name, err := balancerImage(kindDir(t))
	if err != nil || !strings.HasPrefix(name, "docker.io/envoyproxy/envoy:v") {
		t.Errorf("%q, %v: the stand-in reads files that are Envoy's", name, err)
	}
	if name != nodeimage.LoadBalancer {
		t.Errorf("kind wants %s, and fairlead up looks for %s", name, nodeimage.LoadBalancer)
	}
	if _, err := balancerImage(t.TempDir()); err == nil {
		t.Error("no such file: no error")
	}
}

func TestManifests(t *testing.T) {
	files, err := manifestFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		documents := strings.Split(string(f.Data), "---\n")
		if len(documents) < 2 {
			t.Errorf("%s has no object, which kind refuses", f.Name)
		}
		if !strings.Contains(f.Name, "cni") {
			continue
		}
		if !strings.Contains(documents[0], "would you kindly template this file") {
			t.Error("kind would not fill in the pods' subnet")
		}
		var daemons appsv1.DaemonSet
		last := strings.ReplaceAll(documents[len(documents)-1], podSubnet, "10.244.0.0/16")
		if err := yaml.UnmarshalStrict([]byte(last), &daemons); err != nil {
			t.Error(err)
		}
		if env := daemons.Spec.Template.Spec.Containers[0].Env; env[1].Value != "10.244.0.0/16" {
			t.Errorf("env: %+v", env)
		}
	}
}

func TestLibraries(t *testing.T) {
	got := libraries(`/usr/sbin/nft:
	linux-vdso.so.1 (0x00007ffd)
	libmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f)
	/lib64/ld-linux-x86-64.so.2 (0x00007f)
/usr/lib/x86_64-linux-gnu/xtables/libxt_tcp.so
`)
	want := []string{"/lib/x86_64-linux-gnu/libmnl.so.0", "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/xtables/libxt_tcp.so"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// kubeadm's list decides which images the node image contains. The error names an image of that list that is not
// available.
func TestKubernetesImages(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", program, "./cmd/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	programs := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-proxy", "coredns", "pause", "etcd", "kindnet", "podtest"} {
		programs[name] = program
	}
	userland, err := imagetar.Files(imagetar.File{Name: "usr/sbin/nft", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"registry.k8s.io/kube-apiserver:v1", "registry.k8s.io/kube-proxy:v1", "registry.k8s.io/coredns/coredns:v1.2", "registry.k8s.io/pause:3.99", "registry.k8s.io/etcd:3.6.8-0"}
	images, err := kubernetesImages(list, "registry.k8s.io/pause:3.98", programs, userland, []byte("busybox"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, img := range images {
		names[img.Name()] = img.more
	}
	for _, want := range list {
		if _, ok := names[want]; !ok {
			t.Errorf("no image is called %s: %v", want, names)
		}
	}
	if pauses := names["registry.k8s.io/pause:3.99"]; !slices.Contains(pauses, "registry.k8s.io/pause:3.98") || !slices.Contains(pauses, "registry.k8s.io/pause:3.10") {
		t.Errorf("pause is also called %v: those of containerd's configuration and of the checks are missing", pauses)
	}
	_, err = kubernetesImages([]string{"registry.k8s.io/kube-router:v1"}, "", programs, userland, nil)
	if err == nil || !strings.Contains(err.Error(), "kube-router") {
		t.Errorf("an image that is not available: %v", err)
	}
}

// Two versions of the packages that all of Kubernetes is built on would be compiled twice, which costs minutes in CI.
func TestProgramsShareKubernetesPackages(t *testing.T) {
	version := func(dir, module string) string {
		cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s in %s: %v", module, dir, err)
		}
		return strings.TrimSpace(string(out))
	}
	for _, module := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "google.golang.org/grpc", "golang.org/x/net", "google.golang.org/protobuf"} {
		if root, here := version(".", module), version("programs", module); root != here {
			t.Errorf("%s is %s in the root module and %s in programs/go.mod: run there: go get %s@%s && go mod tidy", module, root, here, module, root)
		}
	}
}
