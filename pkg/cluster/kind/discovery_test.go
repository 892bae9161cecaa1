// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/client-go/tools/clientcmd"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// A node that joins knows where the API servers are and whom to trust, and waits for
// no signature.
func TestDiscovery(t *testing.T) {
	patch, err := discoveryPatch()
	if err != nil {
		t.Fatal(err)
	}
	patchJSON, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	// What kind makes, as far as it matters.
	merged, err := jsonpatch.MergePatch([]byte(`{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
		"discovery": {"bootstrapToken": {"apiServerEndpoint": "x:6443", "token": "abcdef.0123456789abcdef", "unsafeSkipCAVerification": true}}}`), patchJSON)
	if err != nil {
		t.Fatal(err)
	}
	var join kubeadmv1beta4.JoinConfiguration
	if err := yaml.UnmarshalStrict(merged, &join); err != nil {
		t.Fatal(err)
	}
	if join.Discovery.BootstrapToken != nil {
		t.Error("both ways at once: kubeadm refuses that")
	}
	if join.Discovery.File == nil || join.Discovery.File.KubeConfigPath != discoveryPath || join.Discovery.TLSBootstrapToken == "" {
		t.Errorf("got %+v", join.Discovery)
	}
	for controlPlanes, server := range map[int]string{
		1: "https://fairlead-dev-control-plane:6443", 3: "https://fairlead-dev-external-load-balancer:6443",
	} {
		p := newTestPlan(t, "")
		p.state.ControlPlanes = controlPlanes
		_, e := find(t, unpacked(t, p, p.nodes()[controlPlanes]), discoveryPath)
		config, err := clientcmd.Load(e.data)
		if err != nil {
			t.Fatal(err)
		}
		got := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
		if got == nil || got.Server != server {
			t.Errorf("%d control planes: nodes join %+v, want %s", controlPlanes, got, server)
			continue
		}
		if ca, err := pki.ParseCert(got.CertificateAuthorityData); err != nil || !ca.IsCA {
			t.Errorf("trusts %v, %v", ca, err)
		}
		if err := clientcmd.Validate(*config); err != nil {
			t.Errorf("kubeadm refuses the file: %v", err)
		}
	}
}
