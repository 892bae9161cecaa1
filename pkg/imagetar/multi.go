// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// ErrImages says that images cannot be the architectures of one image.
var ErrImages = errors.New("not one image for several architectures")

// WriteMulti writes an archive in OCI's layout that holds one image for several architectures. `skopeo copy --all`,
// `ctr images import --all-platforms` and `crane push` read it. The images have the same name and differ in architecture.
func WriteMulti(w io.Writer, images ...*Image) error {
	list, root, err := multiIndexes(images)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	blobs := map[string]bool{} // architectures may share a layer
	put := func(name string, data []byte) error {
		if blobs[name] {
			return nil
		}
		blobs[name] = true
		if err := archive.WriteHeader(header(name, int64(len(data)))); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	err = errors.Join(
		put(imagev1.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+imagev1.ImageLayoutVersion+`"}`)),
		put(imagev1.ImageIndexFile, root), put(blobPath(digest.FromBytes(list)), list))
	for _, img := range images {
		err = errors.Join(err, put(blobPath(digest.FromBytes(img.manifest)), img.manifest), put(blobPath(digest.FromBytes(img.config)), img.config))
		for n, layer := range img.layers {
			name := blobPath(img.blobs[n].Digest)
			if err == nil && !blobs[name] {
				blobs[name] = true
				err = writeLayer(archive, layer, img.blobs[n])
			}
		}
		if err != nil {
			return fmt.Errorf("image %s for %s: %w", img.ShortName(), img.architecture, err)
		}
	}
	return archive.Close()
}

// multiIndexes returns the list of architectures, and the layout's index that names it.
func multiIndexes(images []*Image) (list, root []byte, err error) {
	if len(images) == 0 {
		return nil, nil, fmt.Errorf("%w: there is none", ErrImages)
	}
	seen := map[string]bool{}
	index := imagev1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imagev1.MediaTypeImageIndex}
	for _, img := range images {
		if img.Name() != images[0].Name() || seen[img.architecture] {
			return nil, nil, fmt.Errorf("%w: %s is for %s, but %s is for %s", ErrImages, img.Name(), img.architecture, images[0].Name(), images[0].architecture)
		}
		seen[img.architecture] = true
		one := descriptor(imagev1.MediaTypeImageManifest, img.manifest)
		one.Platform = &imagev1.Platform{OS: "linux", Architecture: img.architecture}
		index.Manifests = append(index.Manifests, one)
	}
	if list, err = json.Marshal(index); err != nil {
		return nil, nil, err
	}
	all := descriptor(imagev1.MediaTypeImageIndex, list)
	all.Annotations = map[string]string{imagev1.AnnotationRefName: images[0].name.Tag(), "io.containerd.image.name": images[0].Name()}
	index.Manifests = []imagev1.Descriptor{all}
	root, err = json.Marshal(index)
	return list, root, err
}
