// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
)

// release makes a release of a small program from sources in a directory of their own.
func release(t *testing.T, message string) string {
	t.Helper()
	source, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for name, text := range map[string]string{
		"go.mod": "module example.org/small\n\ngo 1.26\n", "LICENSE": "a licence\n", "README.md": "# Small\n",
		"cmd/small/main.go": "package main\n\nfunc main() { println(\"" + message + "\") }\n",
	} {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := Make(t.Context(), Options{
		Source: source, Out: out, Version: "v1.2.3", Programs: []string{"./cmd/small"}, Targets: []string{"linux/amd64", "linux/arm64"}, LDFlags: "-s -w",
		Images: func(arch, bin string) ([]*imagetar.Image, error) {
			img, err := imagetar.Program(imagetar.Config{Name: "example/small:v1", Architecture: arch, Entrypoint: []string{"/small"}}, "/small", filepath.Join(bin, "small"))
			return []*imagetar.Image{img}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReproducible: the same sources in two directories give the same files, and Compare finds sources that differ, and a
// file that was changed later.
func TestReproducible(t *testing.T) {
	one, two, other := release(t, "hello"), release(t, "hello"), release(t, "hallo")
	if err := Compare(one, two); err != nil {
		t.Error(err)
	}
	if err := Compare(one, other); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), "fairlead-v1.2.3-linux-arm64.tar.gz") {
		t.Errorf("other sources: %v", err)
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", checksumFile)
	cmd.Dir = one
	if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != 4 {
		t.Errorf("sha256sum: %v\n%s", err, text)
	}
	if err := os.WriteFile(filepath.Join(two, "fairlead-v1.2.3-linux-amd64.tar.gz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Compare(one, two); err == nil || errors.Is(err, ErrDiffers) {
		t.Errorf("a changed file: %v", err)
	}
}

// members reads a tar archive.
func members(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContents: archives have the programs and the licence; the image has both architectures, and each blob is what its
// name says; the bill of materials is valid and names the programs.
func TestContents(t *testing.T) {
	dir := release(t, "hello")
	file, err := os.Open(filepath.Join(dir, "fairlead-v1.2.3-linux-arm64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	got := members(t, zipped)
	for _, name := range []string{"small", "LICENSE", "README.md"} {
		if len(got["fairlead-v1.2.3-linux-arm64/"+name]) == 0 {
			t.Errorf("the archive lacks %s", name)
		}
	}
	checkImage(t, filepath.Join(dir, "example-small-v1.oci.tar"))
	sbom, err := os.Open(filepath.Join(dir, "fairlead-v1.2.3.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer sbom.Close()
	doc, err := spdxjson.Read(sbom)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	if names := described(t, doc); len(names) != 2 || len(doc.Packages) != 3 {
		t.Errorf("describes %v of %d packages, want the program twice and Go's standard library", names, len(doc.Packages))
	}
}

func described(t *testing.T, doc *spdx.Document) (names []string) {
	t.Helper()
	ids, err := spdxlib.GetDescribedPackageIDs(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		names = append(names, string(id))
	}
	return names
}

func checkImage(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	blobs := members(t, file)
	for name, data := range blobs {
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s has another digest", name)
			}
		}
	}
	read := func(name string) (index imagev1.Index) {
		if err := json.Unmarshal(blobs[name], &index); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return index
	}
	list := read("blobs/sha256/" + read("index.json").Manifests[0].Digest.Encoded())
	var architectures []string
	for _, m := range list.Manifests {
		architectures = append(architectures, m.Platform.Architecture)
		var manifest imagev1.Manifest
		if err := json.Unmarshal(blobs["blobs/sha256/"+m.Digest.Encoded()], &manifest); err != nil {
			t.Fatal(err)
		}
		var config imagev1.Image
		if err := json.Unmarshal(blobs["blobs/sha256/"+manifest.Config.Digest.Encoded()], &config); err != nil || config.Architecture != m.Platform.Architecture {
			t.Errorf("the image for %s says %q (%v)", m.Platform.Architecture, config.Architecture, err)
		}
	}
	if strings.Join(architectures, " ") != "amd64 arm64" {
		t.Errorf("architectures %v", architectures)
	}
}

// TestBadInput: a version that cannot be in a file name, a target without an architecture, and sources that do not
// compile are errors that say so, and an earlier release stays as it is.
func TestBadInput(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"version":        func(o *Options) { o.Version = "v1/../x" },
		"OS/ARCH":        func(o *Options) { o.Targets = []string{"linux"} },
		"linux-nonesuch": func(o *Options) { o.Targets = []string{"linux/nonesuch"} },
	} {
		out := t.TempDir()
		kept := filepath.Join(out, "kept")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Source: ".", Out: out, Version: "v1", Programs: []string{"."}, Targets: []string{"linux/amd64"}}
		change(&o)
		if err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}
