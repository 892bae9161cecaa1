// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TestProvidedNode: in a node that "fairlead up --provider kind" has made, status
// knows who made it and from which bundle, and what is missing is a problem.
func TestProvidedNode(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	o := testOptions(root)
	o.Bundle = &v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{
		Transport: v1alpha1.Transport{UDS: &v1alpha1.UDSTransport{Path: "/run/konnectivity/server.socket"}}}}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	text, err := bundle.Encode(o.Bundle.Defaulted())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.RemoveAll(h.Path(StateDir)), os.MkdirAll(h.Path(path.Dir(ProvidedBundle)), 0o755), os.WriteFile(h.Path(ProvidedBundle), text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	status := func() (Status, string) {
		t.Helper()
		o := testOptions(root)
		if o.Bundle, err = InstalledBundle(root); err != nil {
			t.Fatal(err)
		}
		s, err := Inspect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return s, strings.Join(s.Problems, "\n")
	}
	s, problems := status()
	if s.Installed || s.Provider != "kind" || !s.APIServer.Tunnel || s.WithoutTunnel || strings.Contains(problems, "created with the tunnel") {
		t.Errorf("%+v", s)
	}
	manifest, err := nodefs.Host{Root: pristine}.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	put(t, h, apiServerFile, string(manifest))
	if err := os.Remove(h.Path(serverFile)); err != nil {
		t.Fatal(err)
	}
	if s, problems := status(); s.APIServer.Tunnel || !strings.Contains(problems, "does not use the tunnel") || !strings.Contains(problems, "no manifest") {
		t.Errorf("%+v", s)
	}
	put(t, h, ProvidedBundle, bundletest.File("konnectivity: {enabled: false}"))
	if s, problems := status(); !s.WithoutTunnel || strings.Contains(problems, "created with the tunnel") {
		t.Errorf("%+v", s)
	}
	if Provider(pristine) != "" {
		t.Error("every node is one of kind")
	}
}
