// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	kindv1alpha4 "sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	kind "sigs.k8s.io/kind/pkg/cluster"

	fairleadkind "github.com/fairlead-dev/fairlead/pkg/cluster/kind"
)

// plainPrefix begins the names of clusters that fairlead has not made. The
// process that did follows.
const plainPrefix = "fairlead-e2e-plain-"

// PlainUp creates a kind cluster without fairlead, like a cluster of another
// user. It has one control plane node and two workers.
func PlainUp(ctx context.Context, h *Home) (*Cluster, error) {
	provider, err := newKind()
	if err != nil {
		return nil, err
	}
	name := plainPrefix + owner()
	config := &kindv1alpha4.Cluster{
		TypeMeta: kindv1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Nodes:    []kindv1alpha4.Node{{Role: kindv1alpha4.ControlPlaneRole}, {Role: kindv1alpha4.WorkerRole}, {Role: kindv1alpha4.WorkerRole}},
		// Machines with cgroup v1, and those without CAP_SYS_RESOURCE, need these
		// settings.
		KubeadmConfigPatches: []string{"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"},
		ContainerdConfigPatches: []string{
			"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n",
			"version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nrestrict_oom_score_adj = true\n",
		},
	}
	c := &Cluster{Home: h, Name: name, Provider: Kind, plain: true}
	err = fairleadkind.CreateNodes(ctx, provider, name, h.Kubeconfig(), false,
		kind.CreateWithV1Alpha4Config(config), kind.CreateWithNodeImage(NodeImage()), kind.CreateWithWaitForReady(3*time.Minute),
		kind.CreateWithDisplayUsage(false), kind.CreateWithDisplaySalutation(false),
		kind.CreateWithRetain(true)) // for the nodes' logs; Down removes them
	if err != nil {
		return c, fmt.Errorf("kind create cluster: %w", err)
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig())
	if err != nil {
		return c, err
	}
	restConfig.QPS = -1
	if err := c.use(restConfig); err != nil {
		return c, err
	}
	if c.Nodes, err = findNodes(name); err != nil {
		return c, err
	}
	return c, c.prepareTool(ctx)
}

func (c *Cluster) plainDown() error {
	provider, err := newKind()
	if err != nil {
		return err
	}
	return provider.Delete(c.Name, c.Kubeconfig())
}

// sweepPlain removes the plain clusters of processes that are gone.
func sweepPlain() error {
	provider, err := newKind()
	if err != nil {
		return nil //nolint:nilerr // without a container runtime there are none
	}
	names, err := provider.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		maker, ok := strings.CutPrefix(name, plainPrefix)
		if !ok || !ownerGone(maker) {
			continue
		}
		fmt.Fprintf(os.Stderr, "removing cluster %s, which a killed run left\n", name)
		errs = append(errs, provider.Delete(name, os.DevNull))
	}
	return errors.Join(errs...)
}
