// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Config is what an image says about running it; the fields are those of a Dockerfile.
type Config struct {
	// Name with tag, for example "fairlead-dev/fairlead:v0.1.0". What Docker leaves out, "docker.io/", may be left out.
	Name string
	// Entrypoint and Cmd are the program and its default arguments.
	Entrypoint, Cmd []string
	// Env are environment variables, NAME=value. Default: Docker's usual PATH.
	Env []string
	// User is "uid:gid". Default: root.
	User string
	// WorkingDir is where the program starts. Default: "/".
	WorkingDir string
	// StopSignal asks the program to end. Default: SIGTERM.
	StopSignal string
	// Architecture is that of the image's programs. Default: that of this program.
	Architecture string
	// Labels say more about the image.
	Labels map[string]string
}

// Image is ready to be written; its content and names are settled.
type Image struct {
	name     reference.NamedTagged
	layers   []Layer
	blobs    []imagev1.Descriptor // of the layers
	config   []byte
	manifest []byte

	architecture string
}

// ErrChanged says that a file was changed between the making of an image and its writing.
var ErrChanged = errors.New("a file of the image was changed meanwhile")

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// New makes an image of layers. All files are read once, for their digests.
func New(c Config, layers ...Layer) (*Image, error) {
	name, err := parseName(c.Name)
	if err != nil {
		return nil, err
	}
	img := &Image{name: name, layers: layers, architecture: cmp.Or(c.Architecture, runtime.GOARCH)}
	if c.Env == nil {
		c.Env = []string{defaultPath}
	}
	config := imagev1.Image{
		Created:  &epoch,
		Platform: imagev1.Platform{Architecture: img.architecture, OS: "linux"},
		Config: imagev1.ImageConfig{
			User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, Labels: c.Labels, StopSignal: c.StopSignal,
		},
		RootFS: imagev1.RootFS{Type: "layers"},
	}
	for _, layer := range layers {
		blob, err := describe(layer)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", c.Name, err)
		}
		img.blobs = append(img.blobs, blob)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, blob.Digest)
		config.History = append(config.History, imagev1.History{Created: &epoch, CreatedBy: "fairlead pkg/imagetar"})
	}
	if img.config, err = json.Marshal(config); err != nil {
		return nil, err
	}
	img.manifest, err = json.Marshal(imagev1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: imagev1.MediaTypeImageManifest,
		Config:    descriptor(imagev1.MediaTypeImageConfig, img.config),
		Layers:    img.blobs,
	})
	return img, err
}

func parseName(name string) (reference.NamedTagged, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("image name %q: %w", name, err)
	}
	tagged, ok := named.(reference.NamedTagged)
	if !ok {
		return nil, fmt.Errorf("image name %q: a tag is missing", name)
	}
	return tagged, nil
}

// describe reads a layer without keeping it.
func describe(l Layer) (imagev1.Descriptor, error) {
	d := digest.SHA256.Digester()
	size := &counter{}
	err := l.WriteTar(io.MultiWriter(d.Hash(), size))
	return imagev1.Descriptor{MediaType: imagev1.MediaTypeImageLayer, Digest: d.Digest(), Size: size.n}, err
}

func descriptor(mediaType string, data []byte) imagev1.Descriptor {
	return imagev1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// Name is the full name with registry and tag, as container runtimes and kubelets keep it.
func (i *Image) Name() string { return i.name.String() }

// ShortName is the name as Docker shows it and people write it.
func (i *Image) ShortName() string { return reference.FamiliarString(i.name) }

// Architecture is Go's name of the one that its programs are for.
func (i *Image) Architecture() string { return i.architecture }

// Sources are the files of this machine whose content is in the image.
func (i *Image) Sources() []string {
	var out []string
	for _, layer := range i.layers {
		for _, f := range layer {
			if f.Source != "" {
				out = append(out, f.Source)
			}
		}
	}
	return out
}

// ID is the digest of the image's configuration: what `docker image ls` and `crictl images` call the image ID.
func (i *Image) ID() string { return digest.FromBytes(i.config).String() }

// Digest is that of the manifest: what `ctr images list` shows, and what names the image after an @.
func (i *Image) Digest() string { return digest.FromBytes(i.manifest).String() }

// WriteTo writes the archive and returns how many bytes it has written. A file that was changed since New is an error
// (ErrChanged).
func (i *Image) WriteTo(w io.Writer) (int64, error) {
	count := &counter{}
	archive := tar.NewWriter(io.MultiWriter(w, count))
	err := i.write(archive)
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		err = fmt.Errorf("image %s: %w", i.ShortName(), err)
	}
	return count.n, err
}

func (i *Image) write(archive *tar.Writer) error {
	index, dockerManifest, err := i.indexes()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{imagev1.ImageLayoutFile, []byte(`{"imageLayoutVersion":"` + imagev1.ImageLayoutVersion + `"}`)},
		{imagev1.ImageIndexFile, index},
		{"manifest.json", dockerManifest},
		{blobPath(digest.FromBytes(i.manifest)), i.manifest},
		{blobPath(digest.FromBytes(i.config)), i.config},
	} {
		if err := archive.WriteHeader(header(f.name, int64(len(f.data)))); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	written := map[digest.Digest]bool{} // two layers may be equal, two blobs of one name may not be
	for n, layer := range i.layers {
		if written[i.blobs[n].Digest] {
			continue
		}
		written[i.blobs[n].Digest] = true
		if err := writeLayer(archive, layer, i.blobs[n]); err != nil {
			return err
		}
	}
	return nil
}

func writeLayer(archive *tar.Writer, layer Layer, want imagev1.Descriptor) error {
	if err := archive.WriteHeader(header(blobPath(want.Digest), want.Size)); err != nil {
		return err
	}
	verifier := want.Digest.Verifier()
	err := layer.WriteTar(io.MultiWriter(archive, verifier))
	if errors.Is(err, tar.ErrWriteTooLong) || (err == nil && !verifier.Verified()) {
		return ErrChanged
	}
	return err
}

// indexes are the ways into the archive: OCI's and that of `docker save`.
func (i *Image) indexes() (oci, docker []byte, err error) {
	manifest := descriptor(imagev1.MediaTypeImageManifest, i.manifest)
	manifest.Annotations = map[string]string{
		imagev1.AnnotationRefName:  i.name.Tag(),
		"io.containerd.image.name": i.Name(),
	}
	oci, err = json.Marshal(imagev1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: imagev1.MediaTypeImageIndex,
		Manifests: []imagev1.Descriptor{manifest},
	})
	if err != nil {
		return nil, nil, err
	}
	type entry struct {
		Config           string
		RepoTags, Layers []string
	}
	saved := entry{Config: blobPath(digest.FromBytes(i.config)), RepoTags: []string{i.ShortName()}}
	for _, blob := range i.blobs {
		saved.Layers = append(saved.Layers, blobPath(blob.Digest))
	}
	docker, err = json.Marshal([]entry{saved})
	return oci, docker, err
}

func blobPath(d digest.Digest) string {
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: epoch}
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
