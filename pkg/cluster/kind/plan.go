// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/constants"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// State is what is stored about a cluster, in Home.StateFile.
type State struct {
	cluster.Record
	// ControlPlanes and Workers count the nodes of each role.
	ControlPlanes int `json:"controlPlanes"`
	Workers       int `json:"workers"`
	// Image is the node image.
	Image string `json:"image"`
	// Runtime is the command of the container runtime: docker, podman or nerdctl.
	Runtime string `json:"runtime"`
	// Port is the API server's, on loopback.
	Port int `json:"port"`
	// OwnPodNetwork means that nodes have this package's Pod network, because their image
	// contains none.
	OwnPodNetwork bool `json:"ownPodNetwork"`
	// Operator means that the operator runs.
	Operator bool `json:"operator,omitempty"`
}

// plan is everything that is decided about one cluster.
type plan struct {
	cluster.Home
	options upOptions
	state   State
	bundle  *v1alpha1.Bundle
	facts   facts
	// runs is the container runtime in which Plan found room for the cluster, library
	// kind's for it, and log kind's log, once Create has begun.
	runs    *runtime
	library *kindcluster.Provider
	log     *logger
	// load lists the images that nodes lack and that this machine can build.
	load []*imagetar.Image
	// restarted is when nodes were restarted: what the API server recorded about them
	// before that is outdated.
	restarted map[string]time.Time
	// leftPending holds why certificate signing requests of kubelets were not approved,
	// by the request's name.
	leftPending map[string]string
	// keptApart is the message about a firewall between Pods; nil if that has not been
	// checked yet.
	keptApart *string
}

// fresh reports whether an event on a node at time t, which the API server stores with a
// precision of seconds, is not from before the node's restart.
func (p *plan) fresh(node string, t time.Time) bool {
	return !t.Before(p.restarted[node].Truncate(time.Second))
}

// kindName is the cluster's name in kind. Containers, and with them nodes, are named
// after it. It equals the context's name, so that users can find one by the other, and it
// does not collide with kind clusters that users create themselves.
func kindName(name string) string { return cluster.ContextName(name) }

// kind makes the API server listen on this port in the node, and publishes it on
// loopback.
const nodePort = 6443

func (s State) serverURL() string { return loopbackURL(s.Port) }

func loopbackURL(port int) string {
	return "https://" + net.JoinHostPort(cluster.Loopback, strconv.Itoa(port))
}

func (p *plan) tunnel() bool { return ptr.Deref(p.bundle.Konnectivity.Enabled, true) }

// node is one planned node.
type node struct {
	// name is that of the container and of the Node.
	name         string
	controlPlane bool
	// first is the control plane node on which kubeadm init runs.
	first bool
	// podCIDR is the range of the Pods on this node, if the Pod network is our own.
	podCIDR netip.Prefix
}

// nodes lists all nodes under the names that kind gives them, in the order of
// kind's configuration.
func (p *plan) nodes() []node {
	var list []node
	add := func(role string, n int, controlPlane bool) {
		for i := range n {
			name := kindName(p.Name) + "-" + role
			if i > 0 {
				name += fmt.Sprint(i + 1)
			}
			list = append(list, node{name: name, controlPlane: controlPlane, first: controlPlane && i == 0, podCIDR: podCIDR(len(list))})
		}
	}
	add("control-plane", p.state.ControlPlanes, true)
	add("worker", p.state.Workers, false)
	return list
}

// loadBalancer returns the name of the container in front of several API servers, or ""
// if there is only one.
func (p *plan) loadBalancer() string {
	if p.state.ControlPlanes < 2 {
		return ""
	}
	return kindName(p.Name) + "-" + constants.ExternalLoadBalancerNodeRoleValue
}

// containerNames returns the names of all containers of the cluster.
func (p *plan) containerNames() []string {
	var names []string
	for _, n := range p.nodes() {
		names = append(names, n.name)
	}
	if lb := p.loadBalancer(); lb != "" {
		names = append(names, lb)
	}
	return names
}

// Kind's own defaults.
const (
	podSubnet     = "10.244.0.0/16"
	serviceSubnet = "10.96.0.0/16"
)

// apiService returns the address that Kubernetes assigns to the API server's Service: the
// first one of serviceSubnet.
func apiService() netip.Addr { return netip.MustParsePrefix(serviceSubnet).Addr().Next() }

// podCIDR returns the i-th part of podSubnet, of the size that kubeadm assigns to nodes.
func podCIDR(i int) netip.Prefix {
	a := netip.MustParsePrefix(podSubnet).Addr().As4()
	a[2] = byte(i)
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

// nodeDir contains what one node mounts.
func (p *plan) nodeDir(n node) string { return filepath.Join(p.Dir, "nodes", n.name) }

// imageDir contains the images that all nodes load.
func (p *plan) imageDir() string { return filepath.Join(p.Dir, "images") }

// unitDir contains the systemd units and scripts that nodes mount.
func (p *plan) unitDir() string { return filepath.Join(p.Dir, "units") }

// kindConfigFile is the configuration from which kind created the cluster.
func (p *plan) kindConfigFile() string { return filepath.Join(p.ConfigDir(), "kind.yaml") }

// kindKubeconfig is where kind writes its context; the user's file gets a context of
// ours.
func kindKubeconfig(h cluster.Home) string { return h.Kubeconfig("kind") }
