// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	kindv1alpha4 "sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// Paths in the nodes of what is mounted.
const (
	mountedDir    = controlplane.ProvidedDir
	mountedImages = "/kind/fairlead-images"
	mountedUnits  = "/kind/fairlead-units"
	systemdDir    = "/etc/systemd/system"
	// kubeadmPKI is kubeadm's default. A bundle cannot change it, because kind does not
	// set kubeadm's certificatesDir.
	kubeadmPKI = "/etc/kubernetes/pki"
)

// config returns kind's configuration of the cluster.
func (p *plan) config() (*kindv1alpha4.Cluster, error) {
	patches, err := p.kubeadmPatches()
	if err != nil {
		return nil, err
	}
	c := &kindv1alpha4.Cluster{
		TypeMeta: kindv1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Name:     kindName(p.Name),
		Networking: kindv1alpha4.Networking{
			IPFamily: kindv1alpha4.IPv4Family,
			// The server's kubeconfig uses this address, which kind adds to the
			// certificate of every API server.
			APIServerAddress:  cluster.Loopback,
			APIServerPort:     int32(p.state.Port),
			PodSubnet:         podSubnet,
			ServiceSubnet:     serviceSubnet,
			DisableDefaultCNI: p.state.OwnPodNetwork,
		},
		KubeadmConfigPatches: patches,
	}
	if !p.facts.sysResource {
		c.ContainerdConfigPatches = oomScorePatches()
	}
	for _, n := range p.nodes() {
		role := kindv1alpha4.WorkerRole
		if n.controlPlane {
			role = kindv1alpha4.ControlPlaneRole
		}
		c.Nodes = append(c.Nodes, kindv1alpha4.Node{Role: role, Image: p.state.Image, ExtraMounts: p.mounts(n)})
	}
	return c, nil
}

// configYAML returns config as YAML for kind's own strict loader.
func (p *plan) configYAML() ([]byte, error) {
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	return encode(c)
}

func encode(c *kindv1alpha4.Cluster) ([]byte, error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode kind's configuration: %w", err)
	}
	return data, nil
}

// mounts returns what one node mounts; see the package comment.
func (p *plan) mounts(n node) []kindv1alpha4.Mount {
	file := func(host, inNode string) kindv1alpha4.Mount {
		return kindv1alpha4.Mount{HostPath: host, ContainerPath: inNode, Readonly: true}
	}
	list := []kindv1alpha4.Mount{file(p.nodeDir(n), mountedDir), file(p.unitDir(), mountedUnits)}
	for _, u := range p.units() {
		list = append(list, file(filepath.Join(p.unitDir(), u), path.Join(systemdDir, u)))
	}
	for _, service := range []string{"containerd", "kubelet"} {
		list = append(list, file(filepath.Join(p.unitDir(), dropIn), path.Join(systemdDir, service+".service.d", dropIn)))
	}
	if len(p.load) > 0 {
		list = append(list, file(p.imageDir(), mountedImages))
	}
	if n.first {
		for _, name := range []string{"ca.crt", "ca.key"} {
			list = append(list, file(filepath.Join(p.PKIDir(), name), path.Join(kubeadmPKI, name)))
		}
	}
	return list
}

// kubeadmPatches returns the patches that kind merges into its kubeadm configuration.
func (p *plan) kubeadmPatches() ([]string, error) {
	join, err := discoveryPatch()
	if err != nil {
		return nil, err
	}
	verify, err := apiserver.KubeadmKubeletCA(path.Join(kubeadmPKI, "ca.crt"))
	if err != nil {
		return nil, err
	}
	kubelet, err := kubeletPatch()
	if err != nil {
		return nil, err
	}
	patches := []string{join, string(verify), kubelet}
	if p.tunnel() {
		patch, err := apiserver.KubeadmPatch(p.bundle)
		if err != nil {
			return nil, err
		}
		patches = append(patches, string(patch))
	}
	managed, err := sparse(&kubeadmv1beta4.ClusterConfiguration{
		TypeMeta:          metav1.TypeMeta{APIVersion: kubeadmv1beta4.SchemeGroupVersion.String(), Kind: "ClusterConfiguration"},
		ControllerManager: kubeadmv1beta4.ControlPlaneComponent{ExtraArgs: p.controllerManagerArgs()},
	})
	if err != nil {
		return nil, err
	}
	patches = append(patches, managed)
	machine, err := p.machinePatches()
	return append(patches, machine...), err
}

// controllerManagerArgs returns arguments of kube-controller-manager, in addition to
// kind's.
func (p *plan) controllerManagerArgs() []kubeadmv1beta4.Arg {
	args := []kubeadmv1beta4.Arg{
		{Name: "kube-api-qps", Value: cluster.ControllerManagerQPS},
		{Name: "kube-api-burst", Value: cluster.ControllerManagerBurst},
	}
	if p.state.OwnPodNetwork {
		// Nodes have their Pod range before they join; see podnetwork.go.
		args = append(args, kubeadmv1beta4.Arg{Name: "allocate-node-cidrs", Value: "false"})
	}
	return args
}

// kubeletPatch makes kubelets request their serving certificates from the cluster's CA,
// see kubeletcerts.go.
func kubeletPatch() (string, error) {
	return kubeletField(struct {
		metav1.TypeMeta    `json:",inline"`
		ServerTLSBootstrap bool `json:"serverTLSBootstrap"`
	}{kubeletType, true})
}

// machinePatches returns the patches that any cluster on this machine needs.
func (p *plan) machinePatches() ([]string, error) {
	if !p.facts.cgroupV1 {
		return nil, nil
	}
	patch, err := kubeletField(struct {
		metav1.TypeMeta `json:",inline"`
		FailCgroupV1    bool `json:"failCgroupV1"`
	}{kubeletType, false})
	return []string{patch}, err
}

var kubeletType = metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"}

// kubeletField encodes a part of a KubeletConfiguration. The whole type would encode
// more fields: its logging part has no empty form.
func kubeletField(part any) (string, error) {
	data, err := yaml.Marshal(part)
	return string(data), err
}

// sparse encodes v without empty values: kind merges the patch, so an empty value would
// overwrite a setting.
func sparse(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(prune(tree))
	return string(data), err
}

// prune removes nulls, zero durations, and values that are empty as a result.
func prune(tree map[string]any) map[string]any {
	for key, value := range tree {
		if m, ok := value.(map[string]any); ok {
			value = prune(m)
			if len(m) == 0 {
				delete(tree, key)
			}
		}
		if value == nil || value == "" || value == "0s" {
			delete(tree, key)
		}
	}
	return tree
}

// oomScorePatches keep containerd from lowering a container's OOM score, which requires
// CAP_SYS_RESOURCE. kind applies the patch that matches the version of the node's
// containerd configuration.
func oomScorePatches() []string {
	return []string{
		"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n",
		"version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nrestrict_oom_score_adj = true\n",
	}
}
