// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

// Directories below the output directory.
const (
	hostDir    = "host"
	kubeadmDir = "kubeadm"
)

// layout gives every rendered file a path relative to the output directory.
// Files of the host come before objects of the cluster, because they must be
// applied in that order.
func layout(out *bundle.Output) ([]bundle.File, error) {
	var files []bundle.File
	for _, f := range slices.Concat(out.HostFiles, out.SchedulerFiles, out.GatewayFiles) {
		f.Path = path.Join(hostDir, f.Path)
		files = append(files, f)
	}
	for _, f := range out.KubeadmFiles {
		f.Path = path.Join(kubeadmDir, f.Path)
		files = append(files, f)
	}
	for i, object := range out.Objects {
		data, err := bundle.EncodeYAML(object)
		if err != nil {
			return nil, err
		}
		files = append(files, bundle.File{Path: objectFile(i+1, object), Mode: 0o644, Data: data})
	}
	return files, nil
}

// objectFile is a name that sorts in the order of application, since that is how
// kubectl reads a directory.
func objectFile(n int, object component.Object) string {
	kind := strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind)
	name := strings.ReplaceAll(object.GetName(), ":", "-")
	return fmt.Sprintf("%02d-%s-%s.yaml", n, kind, name)
}
