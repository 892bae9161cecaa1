// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/components"
)

// Finding is a problem of a cluster, or a fact worth knowing, before a bundle is
// installed into it.
type Finding struct {
	// ID identifies the finding, for example to ignore it.
	ID string `json:"id"`
	// Warning means that the installation can go on nevertheless.
	Warning bool   `json:"warning,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (f Finding) String() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + "\nhint: " + f.Hint
}

// The IDs of findings.
const (
	// FindingVersion: the bundle's programs do not support this Kubernetes version.
	FindingVersion = "version"
	// FindingSimulated: all nodes are simulated, so no program will run.
	FindingSimulated = "simulated-nodes"
	// FindingNoNodes: there is no node, so nothing can be rolled out.
	FindingNoNodes = "no-nodes"
	// FindingManaged: a cloud provider runs the control plane, and only the provider
	// can change its flags.
	FindingManaged = "managed-control-plane"
	// FindingEgress: the API server has no egress selector and does not use the tunnel.
	FindingEgress = "egress-selector"
	// FindingCount: there are more API servers than agents connect to.
	FindingCount = "server-count"
	// FindingLease: another scheduler holds the Lease.
	FindingLease = "lease"
	// FindingPartition: the nodes do not match the scheduler's partition.
	FindingPartition = "partition"
	// FindingInUse: the API server uses the tunnel whose agents would be deleted.
	FindingInUse = "tunnel-in-use"
)

// Preflight checks whether a bundle, which need not be defaulted, fits the cluster
// behind cfg, and whether the cluster can do without what Apply would delete; force is
// Options.Force. It skips checks of what the user may not read.
func Preflight(ctx context.Context, cfg *rest.Config, b *v1alpha1.Bundle, force bool) ([]Finding, error) {
	b = b.Defaulted()
	c, err := newClient(cfg, Command)
	if err != nil {
		return nil, err
	}
	inUse := func(ctx context.Context, b *v1alpha1.Bundle) (*Finding, error) { return c.findInUse(ctx, b, force) }
	var out []Finding
	for _, look := range []func(context.Context, *v1alpha1.Bundle) (*Finding, error){
		c.findVersion, c.findNodes, c.findEgress, c.findCount, c.findLease, c.findPartition, inUse,
	} {
		f, err := look(ctx, b)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("preflight: %w", err)
		}
		if f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

// minTunnel is the oldest minor version in which all objects of the tunnel are GA.
const minTunnel = 31

// minOperator is the oldest minor version that accepts the definitions of the operator, and keeps their rules.
const minOperator = 31

// findVersion follows Kubernetes' version skew policy: a scheduler is never newer than
// its API server, and at most one minor version older.
func (c *client) findVersion(_ context.Context, b *v1alpha1.Bundle) (*Finding, error) {
	server, text, unknown, err := c.serverVersion()
	if err != nil || unknown != nil {
		return unknown, err
	}
	if ptr.Deref(b.Konnectivity.Enabled, true) && (strings.Contains(text, "-gke.") || strings.Contains(text, "-eks-")) {
		return &Finding{
			ID:      FindingManaged,
			Message: fmt.Sprintf("a cloud provider manages this control plane (%s): you cannot set an egress selector on its API server, so the tunnel would not be used", text),
			Hint:    "set konnectivity.enabled: false to install the second scheduler alone",
		}, nil
	}
	if !ptr.Deref(b.Scheduler.Enabled, true) {
		return versionFinding(server, components.KubernetesVersion(), ""), nil
	}
	programs := scheduler.KubernetesVersion(b.Scheduler.Image)
	if programs == "" {
		return &Finding{
			ID: FindingVersion, Warning: true,
			Message: fmt.Sprintf("scheduler.image %s has no version in its tag, so its compatibility with Kubernetes v%s is unknown", b.Scheduler.Image, server),
			Hint:    "tag the image with its version: Kubernetes supports schedulers of the API server's minor version and the one before",
		}, nil
	}
	return versionFinding(server, programs, b.Scheduler.Image), nil
}

// versionFinding compares the API server's version with the Kubernetes version that
// the programs are built from. An empty schedulerImage means that the bundle has only
// the tunnel.
func versionFinding(server *version.Version, programs, schedulerImage string) *Finding {
	built := version.MustParseGeneric(programs)
	low, high, what := uint(minTunnel), built.Minor()+1, "the tunnel"
	hint := "use the release of fairlead for this Kubernetes"
	if schedulerImage != "" {
		low, what = built.Minor(), fmt.Sprintf("the second scheduler, which is of %d.%d (%s),", built.Major(), built.Minor(), schedulerImage)
		hint += fmt.Sprintf(", or set scheduler.image to one of v%d.%d", server.Major(), server.Minor())
	}
	if schedulerImage != "" && !server.AtLeast(built) {
		hint = "upgrade the control plane first, or " + hint
	}
	return outside(server, built, low, high, what, hint)
}

// outside returns a finding if the API server's version is not from one minor version of Kubernetes to another.
func outside(server, built *version.Version, low, high uint, what, hint string) *Finding {
	if server.Major() == built.Major() && server.Minor() >= low && server.Minor() <= high {
		return nil
	}
	return &Finding{
		ID:      FindingVersion,
		Message: fmt.Sprintf("the cluster runs Kubernetes v%s; %s supports %d.%d to %d.%d", server, what, built.Major(), low, built.Major(), high),
		Hint:    hint,
	}
}

// PreflightOperator checks whether the operator and its definitions fit the cluster behind cfg.
func PreflightOperator(cfg *rest.Config) ([]Finding, error) {
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	f, err := (&client{kube: kube}).findOperatorVersion()
	if err != nil {
		return nil, fmt.Errorf("preflight: %w", err)
	}
	if f == nil {
		return nil, nil
	}
	return []Finding{*f}, nil
}

func (c *client) findOperatorVersion() (*Finding, error) {
	server, _, unknown, err := c.serverVersion()
	if err != nil || unknown != nil {
		return unknown, err
	}
	built := version.MustParseGeneric(components.KubernetesVersion())
	return outside(server, built, minOperator, built.Minor()+1, "the operator", "use the release of fairlead for this Kubernetes"), nil
}

// serverVersion is that of the API server, also as the text that it sends, or a finding if it has none.
func (c *client) serverVersion() (*version.Version, string, *Finding, error) {
	info, err := c.kube.Discovery().ServerVersion()
	if err != nil {
		return nil, "", nil, err
	}
	server, _ := version.ParseGeneric(info.GitVersion)
	if server == nil {
		return nil, "", &Finding{ID: FindingVersion, Message: fmt.Sprintf("the API server calls its version %q: is it Kubernetes?", info.GitVersion)}, nil
	}
	return server, info.GitVersion, nil, nil
}

func (c *client) findNodes(ctx context.Context, _ *v1alpha1.Bundle) (*Finding, error) {
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(nodes.Items) == 0 {
		return &Finding{ID: FindingNoNodes, Warning: true, Message: "the cluster has no nodes: nothing can be rolled out until it has"}, nil
	}
	for _, n := range nodes.Items {
		if n.Annotations["kwok.x-k8s.io/node"] == "" && !strings.HasPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, "kwok") {
			return nil, nil
		}
	}
	return &Finding{
		ID: FindingSimulated, Warning: true, Message: "all nodes are simulated by kwok: Pods will show as running, and no program will run",
		Hint: "is this the right context?",
	}, nil
}

func (c *client) findEgress(ctx context.Context, b *v1alpha1.Bundle) (*Finding, error) {
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		return nil, nil
	}
	_, without, err := c.egressSelectors(ctx)
	return egressFinding(without), err
}

// egressFinding is about API servers without an egress selector.
func egressFinding(without []string) *Finding {
	if len(without) == 0 {
		return nil
	}
	return &Finding{
		ID: FindingEgress, Warning: true,
		Message: fmt.Sprintf("kube-apiserver has no egress selector yet (%s), so nothing goes through the tunnel, and agents stay unready without a server", strings.Join(without, ", ")),
		Hint:    "run `fairlead controlplane install` on every control plane node; docs/control-plane.md has the order",
	}
}

// findCount compares the number of API servers with the server count that the bundle
// gives agents. It skips control planes whose API servers are not visible as Pods.
func (c *client) findCount(ctx context.Context, b *v1alpha1.Bundle) (*Finding, error) {
	with, without, err := c.egressSelectors(ctx)
	if err != nil {
		return nil, err
	}
	return countFinding(b, len(with)+len(without)), nil
}

// countFinding is about more API servers than agents connect to.
func countFinding(b *v1alpha1.Bundle, servers int) *Finding {
	if err := konnectivity.CheckCount(b, servers); err != nil {
		return &Finding{ID: FindingCount, Message: err.Error()}
	}
	return nil
}

// egressSelectors divides the static Pods of kube-apiserver into those with and
// without an egress selector. If the control plane's Pods are not visible, both lists
// are empty.
func (c *client) egressSelectors(ctx context.Context) (with, without []string, err error) {
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver"})
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range pods.Items {
		uses := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
				return strings.HasPrefix(arg, "--egress-selector-config-file")
			})
		})
		if uses {
			with = append(with, pod.Name)
		} else {
			without = append(without, pod.Name)
		}
	}
	return with, without, nil
}

// findLease determines whether another scheduler uses the same Lease for leader
// election: the two would alternate, and each would be idle half of the time.
func (c *client) findLease(ctx context.Context, b *v1alpha1.Bundle) (*Finding, error) {
	for _, l := range LeasesOf(b) {
		lease, err := c.kube.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		inv, err := c.readInventory(ctx)
		if err != nil {
			return nil, err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		known := slices.ContainsFunc(append(inv.Leases, l), func(k Lease) bool {
			return k.Namespace == l.Namespace && k.Name == l.Name && strings.HasPrefix(holder, k.HolderPrefix)
		})
		if !known && held(lease, time.Now()) {
			return &Finding{
				ID: FindingLease,
				Message: fmt.Sprintf("Lease %s/%s is held by %q, which is no Pod of Deployment %s: another scheduler uses it, and the two would take turns",
					l.Namespace, l.Name, holder, b.Scheduler.Name),
				Hint: "set scheduler.leaderElection.leaseName to another name, or stop the other scheduler",
			}, nil
		}
	}
	return nil, nil
}

// findPartition compares the nodes with the scheduler's partition. If no node is in
// the partition, every Pod of the second scheduler stays Pending. It skips a cluster
// without nodes: findNodes reports that.
func (c *client) findPartition(ctx context.Context, b *v1alpha1.Bundle) (*Finding, error) {
	if !ptr.Deref(b.Scheduler.Enabled, true) || b.Scheduler.Partition == nil {
		return nil, nil
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		return nil, err
	}
	live := scheduler.NodesOf(b.Scheduler.Partition, nodes.Items)
	problem, hint := live.Problem()
	if problem == "" {
		return nil, nil
	}
	return &Finding{ID: FindingPartition, Warning: len(live.Inside) > 0, Message: problem, Hint: hint}, nil
}
