// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// binary builds a static program that prints who it is, what it was given, and a file.
func binary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	write(t, source, `package main
import ("fmt"; "os")
func main() {
	data, err := os.ReadFile("/etc/greeting")
	fmt.Println(os.Getuid(), os.Args, os.Getenv("A"), string(data), err)
}
`)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "hello"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "hello")
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func hello(t *testing.T, program string) *Image {
	t.Helper()
	img, err := Program(Config{
		Name: "fairlead-dev/imagetar-test:v1", Entrypoint: []string{"/bin/hello", "to"}, Cmd: []string{"all"},
		Env: []string{"A=b"}, User: "65532:65532",
	}, "/bin/hello", program, File{Name: "etc/greeting", Data: []byte("hi")})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func archive(t *testing.T, img *Image) []byte {
	t.Helper()
	var out bytes.Buffer
	n, err := img.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, out.Len(), err)
	}
	return out.Bytes()
}

// entries reads an archive.
func entries(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(epoch) {
			t.Errorf("%s is of %v", header.Name, header.ModTime)
		}
	}
}

func parse[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// What a reader of OCI layouts finds, following digests from the index to the files.
func TestReadBack(t *testing.T) {
	program := binary(t)
	img := hello(t, program)
	files := entries(t, archive(t, img))
	for name, data := range files {
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest.FromBytes(data).Encoded() != want {
			t.Errorf("%s has the digest %s", name, digest.FromBytes(data))
		}
	}
	index := parse[imagev1.Index](t, files["index.json"])
	if len(index.Manifests) != 1 || index.Manifests[0].Digest.String() != img.Digest() {
		t.Fatalf("index: %+v, want one manifest %s", index, img.Digest())
	}
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "docker.io/fairlead-dev/imagetar-test:v1" {
		t.Errorf("containerd would call it %q", name)
	}
	manifest := parse[imagev1.Manifest](t, files[blobPath(index.Manifests[0].Digest)])
	if manifest.Config.Digest.String() != img.ID() || len(manifest.Layers) != 1 {
		t.Fatalf("manifest: %+v", manifest)
	}
	config := parse[imagev1.Image](t, files[blobPath(manifest.Config.Digest)])
	want := imagev1.ImageConfig{User: "65532:65532", Env: []string{"A=b"}, Entrypoint: []string{"/bin/hello", "to"}, Cmd: []string{"all"}}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if !slices.Equal(config.RootFS.DiffIDs, []digest.Digest{manifest.Layers[0].Digest}) {
		t.Errorf("the layer is not compressed, so its two digests are one: %v", config.RootFS.DiffIDs)
	}
	layer := entries(t, files[blobPath(manifest.Layers[0].Digest)])
	if string(layer["etc/greeting"]) != "hi" || layer["bin/"] == nil && len(layer) != 4 {
		t.Errorf("the layer has %d entries", len(layer))
	}
	if data, err := os.ReadFile(program); err != nil || !bytes.Equal(layer["bin/hello"], data) {
		t.Errorf("the program in the layer is another one (%v)", err)
	}
}

func TestReproducible(t *testing.T) {
	program := binary(t)
	first := archive(t, hello(t, program))
	moved := filepath.Join(t.TempDir(), "elsewhere")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(moved, data, 0o700); err != nil { // another time, place and mode
		t.Fatal(err)
	}
	if !bytes.Equal(first, archive(t, hello(t, moved))) {
		t.Error("the same content gives another archive")
	}
}

func TestChangedMeanwhile(t *testing.T) {
	for name, content := range map[string]string{"as long": "BBBB", "longer": "BBBBBBBB", "shorter": "B"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			write(t, file, "AAAA")
			layer, err := Files(File{Name: "f", Source: file})
			if err != nil {
				t.Fatal(err)
			}
			img, err := New(Config{Name: "a:b"}, layer)
			if err != nil {
				t.Fatal(err)
			}
			write(t, file, content)
			if name != "as long" { // sizes that differ show only when a block of 512 bytes is crossed
				write(t, file, strings.Repeat(content, 1000))
			}
			if _, err := img.WriteTo(io.Discard); !errors.Is(err, ErrChanged) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestFullDisk(t *testing.T) {
	img := hello(t, binary(t))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	if _, err := img.WriteTo(full); err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "imagetar-test:v1") {
		t.Errorf("error = %v", err)
	}
}

func TestDir(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "usr/bin/a"), "a")
	if err := errors.Join(
		os.Symlink("../usr/bin/a", filepath.Join(root, "tmp/l")),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky),
		os.Chmod(filepath.Join(root, "usr/bin/a"), 0o755|fs.ModeSetuid),
	); err != nil {
		t.Fatal(err)
	}
	layer, err := Dir(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range layer {
		got = append(got, fmt.Sprintf("%o %s %s", f.permissions(), f.Name, f.Link))
	}
	want := []string{"1777 tmp ", "777 tmp/l ../usr/bin/a", "755 usr ", "755 usr/bin ", "4755 usr/bin/a "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBadInput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	write(t, text, "#!/bin/sh\n")
	for name, tc := range map[string]struct {
		make func() (any, error)
		want error
		text string
	}{
		"no program":      {func() (any, error) { return Project(t.TempDir()) }, fs.ErrNotExist, "make build"},
		"a script":        {func() (any, error) { return Program(Config{Name: "a:b"}, "/a", text) }, ErrBinary, "text"},
		"dynamic":         {func() (any, error) { return Program(Config{Name: "a:b"}, "/a", "/bin/ls") }, ErrBinary, "CGO_ENABLED=0"},
		"no tag":          {func() (any, error) { return New(Config{Name: "fairlead-dev/fairlead"}) }, nil, "tag is missing"},
		"no name":         {func() (any, error) { return New(Config{Name: "UPPER:x"}) }, nil, "UPPER"},
		"twice":           {func() (any, error) { return Files(File{Name: "/a"}, File{Name: "a"}) }, ErrFile, "twice"},
		"below a file":    {func() (any, error) { return Files(File{Name: "/a"}, File{Name: "/a/b"}) }, ErrFile, "no directory"},
		"the root":        {func() (any, error) { return Files(File{Name: "/"}) }, ErrFile, "empty"},
		"source is a dir": {func() (any, error) { return New(Config{Name: "a:b"}, Layer{{Name: "a", Source: "/tmp"}}) }, ErrFile, "/tmp"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.make()
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error = %v, want %v with %q", err, tc.want, tc.text)
			}
		})
	}
}

// Docker itself reads the archive and runs what is in it, where there is a Docker daemon.
func TestDockerRunsIt(t *testing.T) {
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		t.Skipf("no Docker daemon answers: %v: %s", err, out)
	}
	img := hello(t, binary(t))
	load := exec.Command("docker", "load", "--quiet")
	load.Stdin = bytes.NewReader(archive(t, img))
	if out, err := load.CombinedOutput(); err != nil || !strings.Contains(string(out), "fairlead-dev/imagetar-test:v1") {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", img.ShortName()).Run() })
	out, err := exec.Command("docker", "run", "--rm", "--network=none", img.ShortName()).CombinedOutput()
	if want := "65532 [/bin/hello to all] b hi <nil>\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
	id, err := exec.Command("docker", "image", "inspect", "--format", "{{.Id}}", img.ShortName()).CombinedOutput()
	if err != nil || strings.TrimSpace(string(id)) != img.ID() {
		t.Errorf("%v: Docker's ID is %s, ours %s", err, id, img.ID())
	}
}
