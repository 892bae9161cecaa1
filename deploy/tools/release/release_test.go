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
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
)

// release makes a release of a small program from sources in a directory of their own.
func release(t *testing.T, message string, change ...func(*Options)) string {
	t.Helper()
	source, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for name, text := range map[string]string{
		"go.mod": "module example.org/small\n\ngo 1.26\n", "LICENSE": "a license\n", "README.md": "# Small\n",
		"docs/man/man1/small.1": ".TH SMALL 1\n", "cmd/more/main.go": "package main\n\nfunc main() {}\n",
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
	o := Options{
		Source: source, Out: out, Version: "v1.2.3", ImageTag: "v1.2.3", Programs: []string{"./cmd/small", "./cmd/more"}, Clients: []string{"./cmd/small"},
		Extra: map[string]string{"LICENSE": "LICENSE", "README.md": "README.md", "docs/man": "man"}, Targets: []string{"linux/amd64", "linux/arm64", "darwin/arm64"}, LDFlags: "-s -w",
		Images: func(arch, bin string) ([]*imagetar.Image, error) {
			img, err := imagetar.Program(imagetar.Config{Name: "example/small:v1", Architecture: arch, Entrypoint: []string{"/small"}}, "/small", filepath.Join(bin, "small"))
			return []*imagetar.Image{img}, err
		},
	}
	for _, f := range change {
		f(&o)
	}
	if err := Make(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEnvironment: settings of Go in the environment of who builds do not change the files.
func TestEnvironment(t *testing.T) {
	testutil.Full(t, "compiles the standard library again")
	few := func(o *Options) { o.Targets = []string{"linux/amd64", "linux/arm64"} }
	plain := release(t, "hello", few)
	for name, value := range map[string]string{"GOAMD64": "v3", "GOARM64": "v9.0", "GOEXPERIMENT": "nodwarf5", "GOFIPS140": "latest", "GOFLAGS": "-race", "CGO_ENABLED": "1"} {
		t.Setenv(name, value)
	}
	if err := Compare(plain, release(t, "hello", few)); err != nil {
		t.Error(err)
	}
}

// TestFreshCache: the second build of a comparison compiles all by itself, and takes nothing from the cache of the first one.
func TestFreshCache(t *testing.T) {
	testutil.Full(t, "compiles the standard library again")
	few := func(o *Options) { o.Targets = []string{"linux/amd64"} }
	one := release(t, "hello", few)
	other := filepath.Join(t.TempDir(), "cache")
	t.Setenv("GOCACHE", other)
	two := release(t, "hello", few, func(o *Options) { o.Fresh = true })
	if err := Compare(one, two); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the build used the cache of the environment: %v", err)
	}
}

// TestVersions: a release whose images or chart are of another version is refused, and a build of a commit is not.
func TestVersions(t *testing.T) {
	source := t.TempDir()
	chart := func(version, app string) {
		if err := os.WriteFile(filepath.Join(source, "Chart.yaml"), []byte("version: "+version+"\nappVersion: "+app+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ version, tag, chart, app, want string }{
		{"v1.2.3", "v1.2.3", "1.2.3", "1.2.3", ""},
		{"v9.9.9", "v1.2.3", "9.9.9", "9.9.9", "the images are of version v1.2.3"},
		{"v9.9.9-rc.1", "v9.9.9", "9.9.9", "9.9.9", "the images are of version v9.9.9"},
		{"v1.2.3", "v1.2.3", "1.2.2", "1.2.3", "the chart has version"},
		{"v1.2.3", "v1.2.3", "1.2.3", "1.2.2", "appVersion"},
		{"v1.2.3-4-g0123abc", "v1.2.3", "1.2.3", "1.2.3", ""},
		{"dev", "v1.2.3", "1.2.3", "1.2.3", ""},
	} {
		chart(tc.chart, tc.app)
		o := Options{Source: source, Version: tc.version, ImageTag: tc.tag, Chart: "Chart.yaml", Targets: []string{"linux/amd64"}}
		if _, err := o.complete(); (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	o := Options{Source: "../../..", Version: v1alpha1.ImageTag, ImageTag: v1alpha1.ImageTag, Chart: "deploy/helm/fairlead/Chart.yaml"}
	if _, err := o.complete(); err != nil {
		t.Errorf("this release: %v", err)
	}
}

// TestReproducible: the same sources in two directories give the same files, and Compare finds sources that differ, and a
// file that was changed later.
func TestReproducible(t *testing.T) {
	testutil.Full(t, "compiles the standard library again")
	one, two, other := release(t, "hello"), release(t, "hello"), release(t, "hallo")
	if err := Compare(one, two); err != nil {
		t.Error(err)
	}
	if err := Compare(one, other); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), "fairlead-v1.2.3-linux-arm64.tar.gz") {
		t.Errorf("other sources: %v", err)
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", checksumFile)
	cmd.Dir = one
	if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != 5 {
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

// TestContents: archives have the programs and the license; the image has both architectures, and each blob is what its
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
	for _, name := range []string{"small", "more", "LICENSE", "README.md", "man/man1/small.1"} {
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
	if names := described(t, doc); len(names) != 7 || len(doc.Packages) != 8 {
		t.Errorf("describes %v of %d packages, want two programs for Linux twice, one for macOS, an image twice, and Go's standard library", names, len(doc.Packages))
	}
	checkMaterials(t, dir, doc)
}

// checkMaterials compares the images of a bill of materials with the manifests in their archive.
func checkMaterials(t *testing.T, dir string, doc *spdx.Document) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "example-small-v1.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	blobs := members(t, file)
	images := 0
	for _, p := range doc.Packages {
		if p.PrimaryPackagePurpose != "CONTAINER" {
			continue
		}
		images++
		if len(blobs["blobs/sha256/"+p.PackageChecksums[0].Value]) == 0 || p.PackageFileName != "example-small-v1.oci.tar" || p.PackageVersion != "v1" {
			t.Errorf("%s is no manifest in its archive", p.PackageSPDXIdentifier)
		}
		contains := 0
		for _, r := range doc.Relationships {
			if r.Relationship == "CONTAINS" && r.RefA.ElementRefID == p.PackageSPDXIdentifier && strings.Contains(string(r.RefB.ElementRefID), "-small-linux-") {
				contains++
			}
		}
		if contains != 1 {
			t.Errorf("%s contains %d programs", p.PackageSPDXIdentifier, contains)
		}
	}
	if images != 2 {
		t.Errorf("%d images, want one for each architecture", images)
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
