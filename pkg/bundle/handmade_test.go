// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// pair is a result with its error.
func pair(v any, err error) any { return []any{v, err} }

// everything calls every function that renders part of a bundle.
func everything(t *testing.T, b *v1alpha1.Bundle) map[string]any {
	t.Helper()
	ca, err := pki.NewCA(pki.Config{Algorithm: v1alpha1.KeyECDSAP256, CAValidity: time.Hour}, "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, err = konnectivity.ServerKubeconfig(b, ca, "https://192.0.2.1:6443", time.Now())
	return map[string]any{
		"konnectivity.ServerKubeconfig":               err, // the key is another every time
		"bundle.Render":                               pair(bundle.Render(b)),
		"scheduler.Component":                         scheduler.Component(b),
		"scheduler.StaticComponent":                   scheduler.StaticComponent(b, "/etc/kubernetes/my-scheduler.conf", nil),
		"scheduler.StaticUser":                        scheduler.StaticUser(b),
		"scheduler.Configuration":                     pair(scheduler.Configuration(b, "")),
		"scheduler.ConfigPath":                        scheduler.ConfigPath(b),
		"scheduler.Objects":                           pair(scheduler.Objects(b)),
		"scheduler.Flags":                             scheduler.Flags(b),
		"scheduler.OwnFlags":                          scheduler.OwnFlags(b),
		"scheduler.ProfileNames":                      scheduler.ProfileNames(b),
		"konnectivity.Server":                         konnectivity.Server(b),
		"konnectivity.ServerFlags":                    konnectivity.ServerFlags(b),
		"konnectivity.OwnServerFlags":                 konnectivity.OwnServerFlags(b),
		"konnectivity.Agent":                          konnectivity.Agent(b),
		"konnectivity.AgentFlags":                     konnectivity.AgentFlags(b),
		"konnectivity.OwnAgentFlags":                  konnectivity.OwnAgentFlags(b),
		"konnectivity.Objects":                        pair(konnectivity.Objects(b)),
		"konnectivity.UsesService":                    konnectivity.UsesService(b),
		"apiserver.EgressSelectorConfiguration":       pair(apiserver.EgressSelectorConfiguration(b)),
		"apiserver.Flags":                             apiserver.Flags(b, apiserver.Server{}),
		"apiserver.KubeadmPatch":                      pair(apiserver.KubeadmPatch(b)),
		"apiserver.KubeadmSANs":                       pair(apiserver.KubeadmSANs(b)),
		"apiserver.StaticPodPatch":                    pair(apiserver.StaticPodPatch(b)),
		"apiserver.PatchPod":                          pair(apiserver.PatchPod(kubeadmPod(t, nil), b)),
		"apiserver.Flags of a server without kubeadm": apiserver.Flags(b, apiserver.Server{FrontProxyDir: "/pki"}),
		"apiserver.FrontProxyRequest":                 apiserver.FrontProxyRequest(b),
		"pki.FromBundle":                              pki.FromBundle(b),
	}
}

// TestHandmadeBundle: a bundle that was made in Go, without defaults, renders as
// the same one from a file does, and stays as it is.
func TestHandmadeBundle(t *testing.T) {
	routed := func() *v1alpha1.Bundle {
		return &v1alpha1.Bundle{Namespace: "own", Aggregation: v1alpha1.Aggregation{EnableAggregatorRouting: ptr.To(true)}}
	}
	for name, tc := range map[string]struct {
		b      *v1alpha1.Bundle
		config string
	}{
		"nil":    {nil, ""},
		"empty":  {&v1alpha1.Bundle{}, ""},
		"partly": {routed(), "namespace: own\naggregation: {enableAggregatorRouting: true}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.b.DeepCopy()
			want, got := everything(t, load(t, tc.config)), everything(t, tc.b)
			for part := range want {
				if diff := cmp.Diff(want[part], got[part]); diff != "" {
					t.Errorf("%s (-from a file +made in Go):\n%s", part, diff)
				}
			}
			if diff := cmp.Diff(before, tc.b); diff != "" {
				t.Errorf("the bundle was changed:\n%s", diff)
			}
		})
	}
}

// TestRenderRefusesInvalid: Render rejects the same values in a bundle made in
// Go that Load rejects in a file.
func TestRenderRefusesInvalid(t *testing.T) {
	b := &v1alpha1.Bundle{Konnectivity: v1alpha1.Konnectivity{AgentPort: 80}}
	if out, err := bundle.Render(b); !errors.Is(err, bundle.ErrInvalid) || out != nil {
		t.Errorf("output %v, error %v, want ErrInvalid", out, err)
	}
	if errs := bundle.Validate(&v1alpha1.Bundle{}); len(errs) == 0 {
		t.Error("a bundle without defaults passed Validate, which demands them")
	}
	b = &v1alpha1.Bundle{Konnectivity: v1alpha1.Konnectivity{Server: v1alpha1.KonnectivityServer{Resources: &corev1.ResourceRequirements{}}}}
	if _, err := bundle.Render(b); err != nil {
		t.Errorf("explicitly no resources: %v", err)
	}
}
