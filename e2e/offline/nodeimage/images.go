// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// named is an image with the further names that containerd is to know it by.
type named struct {
	*imagetar.Image
	more []string
}

// kubernetesImages makes an image for every name that kubeadm lists, and the others that a node needs. A name that is not
// known is an error: a new Kubernetes may want a new one.
func kubernetesImages(kubeadm []string, sandbox string, programs map[string]string, userland imagetar.Layer, busybox []byte) ([]named, error) {
	var images []named
	for _, name := range kubeadm {
		img, err := kubernetesImage(name, programs, userland)
		if err != nil {
			return nil, err
		}
		more := []string{}
		if strings.Contains(name, "/pause:") {
			// The checks' pause and the one of containerd's configuration are of other releases than kubeadm's.
			for _, other := range []string{sandbox, check.DefaultPauseImage} {
				if other != name && other != "" && (len(more) == 0 || more[0] != other) {
					more = append(more, other)
				}
			}
		}
		images = append(images, named{img, more})
	}
	cni, err := withUserland(kindnetImage, "kindnet", programs, userland)
	if err != nil {
		return nil, err
	}
	pods, err := podImage(programs["podtest"], busybox)
	if err != nil {
		return nil, err
	}
	return append(images, named{Image: cni}, named{pods, []string{check.DefaultProbeImage}}), nil
}

func kubernetesImage(name string, programs map[string]string, userland imagetar.Layer) (*imagetar.Image, error) {
	program, _, _ := strings.Cut(path.Base(name), ":")
	binary, ok := programs[program]
	if !ok {
		return nil, fmt.Errorf("kubeadm asks for the image %s, and no program here is called %s", name, program)
	}
	switch program {
	case "coredns", "pause": // their pods name no command
		return imagetar.Program(imagetar.Config{Name: name, Entrypoint: []string{"/" + program}}, "/"+program, binary)
	case "kube-proxy":
		return withUserland(name, program, programs, userland)
	default: // kubeadm's static Pods name their command
		return imagetar.Program(imagetar.Config{Name: name}, "/usr/local/bin/"+program, binary)
	}
}

// withUserland makes an image of a program that calls iptables and its like.
func withUserland(name, program string, programs map[string]string, userland imagetar.Layer) (*imagetar.Image, error) {
	file := "/usr/local/bin/" + program
	layer, err := imagetar.Files(imagetar.File{Name: file, Mode: 0o755, Source: programs[program]})
	if err != nil {
		return nil, err
	}
	return imagetar.New(imagetar.Config{Name: name, Entrypoint: []string{file}}, userland, layer)
}

// podImage is nodeimage.PodImage: a server, and busybox for everything else.
func podImage(server string, busybox []byte) (*imagetar.Image, error) {
	files := shell(busybox)
	files = append(files, imagetar.File{Name: "tmp", Mode: 0o777 | dirMode | stickyMode})
	return imagetar.Program(imagetar.Config{Name: nodeimage.PodImage, Entrypoint: []string{"/podtest"}}, "/podtest", server, files...)
}

var sandboxLine = regexp.MustCompile(`(?m)^\s*sandbox_image\s*=\s*"([^"]+)"`)

// sandboxImage finds the pause image in containerd's configuration.
func sandboxImage(config string) string {
	if found := sandboxLine.FindStringSubmatch(config); found != nil {
		return found[1]
	}
	return ""
}
