// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// In nodes that "fairlead up --provider kind" has created, which have the tunnel
// from the start, ProvidedDir is mounted, and ProvidedBundle is the bundle they
// were created from.
const (
	ProvidedDir    = "/kind/fairlead"
	ProvidedBundle = ProvidedDir + "/bundle.yaml"
)

// Provider returns the name of the provider that created the node below root
// together with the tunnel, or "" if none did.
func Provider(root string) string {
	if (nodefs.Host{Root: root}).Exists(ProvidedDir) {
		return "kind"
	}
	return ""
}

// providedBundle returns the bundle that the node was created from, or nil if it
// was created without one, or by a release that did not store it there.
func providedBundle(h nodefs.Host) (*v1alpha1.Bundle, error) {
	data, err := h.Read(ProvidedBundle)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ProvidedBundle, err)
	}
	return b, nil
}

// inspectProvided reports what is missing on a node that was created with the
// tunnel.
func (s *Status) inspectProvided(n *node) {
	if s.Provider == "" || s.Installed {
		return
	}
	s.WithoutTunnel = !ptr.Deref(n.bundle.Konnectivity.Enabled, true)
	if s.WithoutTunnel {
		return
	}
	const advice = "this node was created with the tunnel; recreate the cluster with \"fairlead down\" and \"fairlead up\""
	if !s.APIServer.Tunnel {
		s.Problems = append(s.Problems, "kube-apiserver does not use the tunnel: "+advice)
	}
	if n.bundle.Konnectivity.Server.Form != v1alpha1.FormDaemonSet && !n.HasFile(manifests.ServerFile(n.bundle)) {
		s.Problems = append(s.Problems, konnectivity.ServerName+" has no manifest: "+advice)
	}
}
