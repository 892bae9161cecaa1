// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// KubeadmPatch is the part of a kubeadm ClusterConfiguration (v1beta4) that makes
// kube-apiserver use the tunnel: flag, mounts, and the name that agents dial
// among the names of the API server's certificate. Merge it into the
// configuration of "kubeadm init", or give it to kind as a kubeadm config patch.
func KubeadmPatch(b *v1alpha1.Bundle) ([]byte, error) {
	b = b.Defaulted()
	server := kubeadmv1beta4.APIServer{CertSANs: certSANs(b)}
	server.ExtraArgs = kubeadmArgs(Flags(b, Server{}))
	for _, m := range mounts(b) {
		server.ExtraVolumes = append(server.ExtraVolumes, kubeadmv1beta4.HostPathMount{
			Name: m.name, HostPath: m.dir, MountPath: m.dir, ReadOnly: m.readOnly, PathType: m.kind,
		})
	}
	return clusterConfiguration(server)
}

// KubeadmKubeletCA is the part of a kubeadm ClusterConfiguration that makes kube-apiserver
// verify kubelets by the CA in caFile. Use it only where kubelets have serving certificates
// of that CA, which kubeadm alone does not give them.
func KubeadmKubeletCA(caFile string) ([]byte, error) {
	var server kubeadmv1beta4.APIServer
	server.ExtraArgs = kubeadmArgs([]component.Flag{component.PathFlag(KubeletCAFlag, caFile)})
	return clusterConfiguration(server)
}

func kubeadmArgs(list []component.Flag) []kubeadmv1beta4.Arg {
	var args []kubeadmv1beta4.Arg
	for _, f := range list {
		args = append(args, kubeadmv1beta4.Arg{Name: f.Name, Value: f.Value})
	}
	return args
}

// KubeadmSANs is the part of [KubeadmPatch] that [StaticPodPatch] lacks, since a
// patch of a Pod does not reach certificates: the name that agents dial. It is
// nil where agents are shown another certificate than the API server's.
func KubeadmSANs(b *v1alpha1.Bundle) ([]byte, error) {
	names := certSANs(b.Defaulted())
	if len(names) == 0 {
		return nil, nil
	}
	return clusterConfiguration(kubeadmv1beta4.APIServer{CertSANs: names})
}

func clusterConfiguration(server kubeadmv1beta4.APIServer) ([]byte, error) {
	data, err := encodeSparse(&kubeadmv1beta4.ClusterConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: kubeadmv1beta4.SchemeGroupVersion.String(), Kind: "ClusterConfiguration",
		},
		APIServer: server,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the kubeadm configuration: %w", err)
	}
	return data, nil
}

// certSANs is the name that agents dial, if the server shows them the API
// server's certificate.
func certSANs(b *v1alpha1.Bundle) []string {
	if b.Konnectivity.Server.CertFile != path.Join(b.ControlPlane.PKIDir, "apiserver.crt") {
		return nil
	}
	return []string{b.Konnectivity.ServerHost}
}

// encodeSparse encodes without the empty objects that kubeadm's types produce:
// a patch should hold what it changes and nothing else.
func encodeSparse(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	for key, value := range tree {
		if m, ok := value.(map[string]any); ok && len(m) == 0 {
			delete(tree, key)
		}
	}
	return yaml.Marshal(tree)
}
