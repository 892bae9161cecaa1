// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/cluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/fileplan"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const apiServer = manifests.APIServer

// node is a control plane node: what is known about it, and how to query it.
type node struct {
	nodefs.Host
	opts   Options
	bundle *v1alpha1.Bundle
	state  *State

	// manifest is kube-apiserver's manifest, read from manifestPath.
	manifestPath string
	manifest     []byte
	pod          *corev1.Pod
	container    corev1.Container

	// ownName is the node's name, as far as it could be determined.
	ownName string
	// address is that of this node's own API server.
	address string
	// client connects to that API server.
	client *apiclient.Client
}

// newNode sets up a node from the options. It reads no file and needs no API
// server.
func newNode(o Options) *node {
	b := o.Bundle.Defaulted()
	n := &node{Host: nodefs.Host{Root: o.Root}, opts: o, bundle: b, client: &apiclient.Client{}}
	n.manifestPath = manifests.APIServerFile(b)
	return n
}

// api returns the cluster's API as this node reaches it.
func (n *node) api() cluster.API {
	return cluster.API{Client: n.client.Interface, Err: n.client.Err, Node: n.ownName, Bundle: n.bundle}
}

// readManifest reads kube-apiserver's manifest and sets the fields derived from
// it.
func (n *node) readManifest() error {
	data, err := n.Read(n.manifestPath)
	if err != nil {
		return err
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrManifest, n.manifestPath, err)
	}
	i := manifests.APIServerIndex(pod)
	if i < 0 {
		var names []string
		for _, c := range pod.Spec.Containers {
			names = append(names, c.Name)
		}
		return fmt.Errorf("%w %s: none of its containers is named %s, only %s", ErrManifest, n.manifestPath, apiServer, strings.Join(names, ", "))
	}
	n.manifest, n.pod, n.container = data, pod, pod.Spec.Containers[i]
	n.address = apiclient.Address(n.container)
	return nil
}

// connect prepares the client of this node's API server, whether or not the server
// runs.
func (n *node) connect() {
	n.ownName = apiclient.NodeName(n.Host)
	n.client = apiclient.New(apiclient.Server{Host: n.Host, PKIDir: n.bundle.ControlPlane.PKIDir, Container: n.container})
	if n.opts.client != nil {
		n.client.Interface = n.opts.client
		return
	}
	n.client.Login(n.opts.Kubeconfig)
}

// mirror returns the mirror Pod of one of the two static Pods.
func (n *node) mirror(pod string) kubelet.Mirror {
	return kubelet.Mirror{Host: n.Host, Client: n.client.Interface, Err: n.client.Err, Dir: n.bundle.ControlPlane.ManifestsDir,
		Namespace: n.namespaceOf(pod), Pod: pod, Node: n.ownName}
}

func (n *node) namespaceOf(pod string) string {
	if pod == konnectivity.ServerName {
		return n.bundle.Namespace
	}
	return metav1.NamespaceSystem
}

func (n *node) proc() kubelet.Procfs { return kubelet.Procfs(n.opts.proc) }

// checkVisible fails if a program works but its process is not visible from here.
func (n *node) checkVisible(p *kubelet.Program) error {
	if n.opts.waits != nil {
		return nil
	}
	return n.proc().Visible(p)
}

// healthy calls a health check.
func (n *node) healthy(ctx context.Context, url string) error {
	if n.opts.health != nil {
		return n.opts.health(url)
	}
	return n.client.Healthy(ctx, url)
}

// certs returns the node as package certs needs it.
func (n *node) certs() certs.Node {
	return certs.Node{Host: n.Host, Bundle: n.bundle, Now: n.opts.Now}
}

// certPlanner returns a planner that adds certificates to the plan.
func (n *node) certPlanner(plan *fileplan.Plan) *certs.Planner {
	server := n.opts.Server
	if server == "" {
		server = "https://" + n.address
	}
	return &certs.Planner{Node: n.certs(), Plan: plan, CACert: n.opts.CACert, CAKey: n.opts.CAKey, ServerKubeconfig: n.opts.ServerKubeconfig, Server: server}
}

// checkNode checks that root runs this on a kubeadm control plane node, and that
// its manifest is readable.
func (n *node) checkNode() error {
	user := os.Geteuid
	if n.opts.user != nil {
		user = n.opts.user
	}
	if user() != 0 {
		return errors.New("only root may change a control plane: run it with sudo")
	}
	dir := n.bundle.ControlPlane.ManifestsDir
	if !n.Exists(n.manifestPath) {
		return fmt.Errorf("%s does not exist: this is not a kubeadm control plane node; run the command on each of those, "+
			"or set controlPlane.manifestsDir if its kubelet reads another directory than %s", n.manifestPath, dir)
	}
	return n.readManifest()
}

// checkReady fails if kube-apiserver is not ready before the run: a failure that
// existed before could not be distinguished from one that the change caused.
func (n *node) checkReady(ctx context.Context) error {
	if n.opts.ready != nil {
		return n.opts.ready()
	}
	if n.opts.waits != nil {
		return nil
	}
	if err := n.healthy(ctx, "https://"+n.address+"/readyz"); err != nil {
		return fmt.Errorf("kube-apiserver is not ready as it is now: get it to work first: %w", err)
	}
	return nil
}
