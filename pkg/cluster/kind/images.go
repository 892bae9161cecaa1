// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// images are the names of the images that the bundle's Pods need, and the operator's.
func (p *plan) images() []string {
	names := bundle.Images(p.bundle)
	if p.state.Operator {
		names = append(names, v1alpha1.DefaultOperatorImage)
	}
	return names
}

// ownImages returns those of some images that are built from the programs next
// to this one. The kubelet pulls all others.
func ownImages(names []string) ([]*imagetar.Image, error) {
	needed := map[string]bool{}
	for _, name := range names {
		if full, err := reference.ParseNormalizedNamed(name); err == nil {
			needed[reference.TagNameOnly(full).String()] = true
		}
	}
	if !slices.ContainsFunc(imagetar.ProjectNames(), func(name string) bool { return needed[name] }) {
		return nil, nil
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the path of this program: %w", err)
	}
	images, err := imagetar.ProjectOnly(filepath.Dir(self), func(name string) bool { return needed[name] })
	if err != nil {
		return nil, fmt.Errorf("packing images: %w", err)
	}
	return images, nil
}

// notBaked returns the images that the node image does not list. If it has one
// without listing it, the node detects that; see node/images.sh.
func notBaked(images []*imagetar.Image, baked map[string]string) []*imagetar.Image {
	return slices.DeleteFunc(slices.Clone(images), func(i *imagetar.Image) bool { return baked[i.Name()] == i.Digest() })
}

// writeImages writes what nodes load: archives, and a list of them in load
// order, starting with the static Pod's.
func (p *plan) writeImages() error {
	if len(p.load) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.imageDir(), 0o700); err != nil {
		return fmt.Errorf("creating the cluster's directories: %w", err)
	}
	var list strings.Builder
	server := p.bundle.Konnectivity.Server.Image
	slices.SortStableFunc(p.load, func(a, b *imagetar.Image) int {
		switch server {
		case a.ShortName():
			return -1
		case b.ShortName():
			return 1
		}
		return 0
	})
	for i, image := range p.load {
		name := fmt.Sprintf("%d.tar", i)
		if err := writeImage(filepath.Join(p.imageDir(), name), image); err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s %s %s\n", image.Name(), image.Digest(), name)
	}
	return os.WriteFile(filepath.Join(p.imageDir(), "list"), []byte(list.String()), 0o600)
}

func writeImage(path string, image *imagetar.Image) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = image.WriteTo(f)
	return err
}
