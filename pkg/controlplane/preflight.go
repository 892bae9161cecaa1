// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// Supported minor versions of kube-apiserver: those that this package has been
// tested with, and those without a relevant difference. From 1.31 on kubeadm
// stores its configuration as v1beta4.
const (
	minMinor = 31
	maxMinor = 37
)

// preflight runs every check that needs no plan. It only reads.
func (p *planner) preflight(ctx context.Context) {
	if !ptr.Deref(p.bundle.Konnectivity.Enabled, true) {
		p.Fail(errors.New("konnectivity.enabled is false in the bundle: there is nothing to install on a control plane node"))
		return
	}
	if errs := bundle.Validate(p.bundle); len(errs) > 0 {
		p.Fail(fmt.Errorf("%w: %w", bundle.ErrInvalid, errs.ToAggregate()))
		return
	}
	if err := p.checkNode(); err != nil {
		p.Fail(err)
		return
	}
	p.connect()
	p.Fail(p.checkVersion())
	p.Fail(p.checkManifestsDir())
	p.Fail(p.checkCA())
	p.Fail(p.checkFrontProxyCA())
	p.warnKubelets()
	p.Fail(p.checkReady(ctx))
	p.checkPorts(ctx)
	p.checkAgents(ctx)
	p.Fail(p.checkCount(ctx))
	if p.Err() == nil {
		p.Fail(p.checkVisible(kubelet.ProgramOf(p.container)))
	}
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

// checkVersion compares the image tag in the manifest with the supported
// versions. If the tag is not a version, it asks the API server.
func (n *node) checkVersion() error {
	text := n.container.Image[strings.LastIndex(n.container.Image, ":")+1:]
	version, _ := utilversion.ParseGeneric(text)
	if version == nil && n.client != nil {
		if info, err := n.client.Discovery().ServerVersion(); err == nil {
			version, _ = utilversion.ParseGeneric(info.GitVersion)
		}
	}
	if version == nil {
		n.opts.Notef("the version of kube-apiserver is unknown: its image is %s", n.container.Image)
		return nil
	}
	if version.Major() == 1 && version.Minor() >= minMinor && version.Minor() <= maxMinor {
		return nil
	}
	advice := "upgrade the cluster first"
	if version.Minor() > maxMinor {
		advice = "use a newer fairlead"
	}
	return n.opts.ignorable(CheckVersion, fmt.Errorf("kube-apiserver is v%s, this fairlead supports v1.%d to v1.%d: %s", version, minMinor, maxMinor, advice))
}

// checkManifestsDir checks that the kubelet reads the directory, and that no
// other file in it defines the same Pod, such as a copy made by hand.
func (n *node) checkManifestsDir() error {
	dir := n.bundle.ControlPlane.ManifestsDir
	if data, err := n.Read("/var/lib/kubelet/config.yaml"); err == nil {
		var config struct {
			StaticPodPath string `json:"staticPodPath"`
		}
		if err := sigsyaml.Unmarshal(data, &config); err == nil && config.StaticPodPath != "" && path.Clean(config.StaticPodPath) != path.Clean(dir) {
			return fmt.Errorf("this node's kubelet reads static Pods from %s, not from %s: set controlPlane.manifestsDir", config.StaticPodPath, dir)
		}
	}
	files, err := filepath.Glob(filepath.Join(n.Follow(dir), "[^.]*"))
	if err != nil {
		return err
	}
	own := map[string]string{apiServer: n.manifestPath, konnectivity.ServerName: manifests.ServerFile(n.bundle)}
	for _, file := range files {
		name := path.Join(dir, filepath.Base(file)) // links on the way here may lead elsewhere
		data, err := n.Read(name)
		if err != nil {
			continue // a directory
		}
		pod, err := manifests.Decode(data)
		if err != nil {
			continue
		}
		if should := own[pod.Name]; should != "" && should != name {
			return fmt.Errorf("%s is a static Pod %s, too, and the kubelet runs every file in that directory: move it out", name, pod.Name)
		}
	}
	return nil
}

// checkCA checks that the cluster's CA has not expired: a certificate of an
// expired CA is worthless, and so is the cluster.
func (n *node) checkCA() error {
	name := path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt")
	data, err := n.Read(name)
	if err != nil {
		return fmt.Errorf("%w: it is the cluster's CA: set controlPlane.pkiDir if it is elsewhere", err)
	}
	certs, err := pki.ParseCerts(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return !n.opts.Now().After(c.NotAfter) }) {
		return fmt.Errorf("%s: the cluster's CA has expired on %s: renew the CA first", name, certs[0].NotAfter.Format("2006-01-02"))
	}
	return nil
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

// checkPorts fails if another process listens on one of the server's ports,
// because the server could not start. It skips the check if a server is installed
// or runs, as that server holds the ports.
func (p *planner) checkPorts(ctx context.Context) {
	if p.HasFile(manifests.ServerFile(p.bundle)) || p.serverRuns() {
		return
	}
	for _, port := range konnectivity.Server(p.bundle).Ports {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", fmt.Sprintf(":%d", port.Number))
		if err == nil {
			_ = listener.Close()
			continue
		}
		if owner := p.proc().Listener(port.Number); owner != "" {
			err = errors.New("used by " + owner)
		}
		p.Fail(fmt.Errorf("port %d, which the server needs as %s, is taken (%w): stop that, or set %s",
			port.Number, port.Name, err, portField(port.Name)))
	}
}

func (p *planner) serverRuns() bool {
	c := konnectivity.Server(p.bundle)
	server := kubelet.Program{Name: path.Base(c.Command[0]), Args: component.Args(c.Flags)}
	return len(p.proc().Find(&server, true)) > 0
}

func portField(name string) string {
	switch name {
	case konnectivity.PortAgent:
		return "konnectivity.agentPort"
	case konnectivity.PortAdmin:
		return "konnectivity.server.adminPort"
	case konnectivity.PortHealth:
		return "konnectivity.server.healthPort"
	}
	return "konnectivity.transport.tcp.url"
}

// checkAgents fails if the cluster has no agents and has blocking webhooks. From
// the moment kube-apiserver uses the tunnel until the first agent is connected,
// kube-apiserver reaches no webhook. A webhook that must be called for every Pod
// would then reject the agents' Pods, and never recover.
func (p *planner) checkAgents(ctx context.Context) {
	if p.opts.ServerOnly || p.client == nil || (p.state != nil && !p.state.Manifest.Empty()) {
		return
	}
	if agents, err := p.api().HasAgents(ctx); err != nil || agents {
		if err != nil {
			p.opts.Notef("could not look for agents: %v", err)
		}
		return
	}
	hooks, err := p.blockingWebhooks(ctx)
	if err != nil {
		p.opts.Notef("could not look for webhooks: %v", err)
		return
	}
	if len(hooks) > 0 {
		err := fmt.Errorf("the cluster has no agents yet, and without one kube-apiserver cannot reach the webhooks that it must call (%s), "+
			"not even to admit agents: run this command with --server-only, then \"fairlead install\", then again without --server-only", strings.Join(hooks, ", "))
		if err = p.opts.ignorable(CheckAgents, err); err != nil {
			p.Fail(err)
		}
		return
	}
	p.opts.Notef("the cluster has no agents yet: logs, exec and everything else on the way to nodes fails until \"fairlead install\" has brought them")
}

// blockingWebhooks returns the admission webhook configurations that call a
// Service and whose failure policy is Fail.
func (n *node) blockingWebhooks(ctx context.Context) ([]string, error) {
	validating, err := n.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	mutating, err := n.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	add := func(config string, client admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType) {
		if client.Service != nil && ptr.Deref(policy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail && !slices.Contains(names, config) {
			names = append(names, config)
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			add(c.Name, w.ClientConfig, w.FailurePolicy)
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			add(c.Name, w.ClientConfig, w.FailurePolicy)
		}
	}
	return names, nil
}
