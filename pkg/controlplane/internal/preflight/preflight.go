// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether a control plane node allows an installation. It only reads.
// Start at [Run].
package preflight

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/cluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Supported minor versions of kube-apiserver: those that this package has been
// tested with, and those without a relevant difference. From 1.31 on kubeadm
// stores its configuration as v1beta4.
const (
	minMinor = 31
	maxMinor = 37
)

// Node is a control plane node that runs kube-apiserver.
type Node struct {
	nodefs.Host
	Bundle *v1alpha1.Bundle
	// Container is kube-apiserver's, from its manifest.
	Container corev1.Container
	// API is the cluster's API. Without a client, checks that need one are skipped.
	API cluster.API
	// Proc has the node's processes.
	Proc kubelet.Procfs
	// Now is the clock.
	Now func() time.Time
	// Notef receives warnings.
	Notef func(format string, args ...any)
	// Ignored are the checks whose errors become warnings.
	Ignored Ignored
	// ServerOnly: the installation does not change kube-apiserver.
	ServerOnly bool
	// UsesTunnel: an earlier installation has changed kube-apiserver.
	UsesTunnel bool
	// Ready fails if kube-apiserver is not ready.
	Ready func(context.Context) error
}

// Run returns every reason against the installation.
func Run(ctx context.Context, n Node) []error {
	errs := []error{n.checkVersion(), n.checkManifestsDir(), n.checkCA(), n.checkFrontProxyCA()}
	n.warnKubelets()
	errs = append(errs, n.Ready(ctx))
	errs = append(errs, n.checkPorts(ctx)...)
	errs = append(errs, n.checkAgents(ctx), n.checkCount(ctx))
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// ignorable reports err as a warning if the user ignores the check. Otherwise it
// returns err and names the flag that ignores the check.
func (n *Node) ignorable(id string, err error) error {
	switch {
	case err == nil:
		return nil
	case n.Ignored.Has(id):
		n.Notef("%v", err)
		return nil
	}
	return fmt.Errorf("%w; or ignore this check with --ignore-preflight-errors=%s", err, id)
}

// checkVersion compares the image tag in the manifest with the supported
// versions. If the tag is not a version, it asks the API server.
func (n *Node) checkVersion() error {
	text := n.Container.Image[strings.LastIndex(n.Container.Image, ":")+1:]
	version, _ := utilversion.ParseGeneric(text)
	if version == nil && n.API.Client != nil {
		if info, err := n.API.Client.Discovery().ServerVersion(); err == nil {
			version, _ = utilversion.ParseGeneric(info.GitVersion)
		}
	}
	if version == nil {
		n.Notef("the version of kube-apiserver is unknown: its image is %s", n.Container.Image)
		return nil
	}
	if version.Major() == 1 && version.Minor() >= minMinor && version.Minor() <= maxMinor {
		return nil
	}
	advice := "upgrade the cluster first"
	if version.Minor() > maxMinor {
		advice = "use a newer fairlead"
	}
	return n.ignorable(Version, fmt.Errorf("kube-apiserver is v%s, this fairlead supports v1.%d to v1.%d: %s", version, minMinor, maxMinor, advice))
}

// checkManifestsDir checks that the kubelet reads the directory, and that no
// other file in it defines the same Pod, such as a copy made by hand.
func (n *Node) checkManifestsDir() error {
	dir := n.Bundle.ControlPlane.ManifestsDir
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
	own := map[string]string{manifests.APIServer: manifests.APIServerFile(n.Bundle), konnectivity.ServerName: manifests.ServerFile(n.Bundle)}
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
func (n *Node) checkCA() error {
	name := path.Join(n.Bundle.ControlPlane.PKIDir, "ca.crt")
	data, err := n.Read(name)
	if err != nil {
		return fmt.Errorf("%w: it is the cluster's CA: set controlPlane.pkiDir if it is elsewhere", err)
	}
	certs, err := pki.ParseCerts(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return !n.Now().After(c.NotAfter) }) {
		return fmt.Errorf("%s: the cluster's CA has expired on %s: renew the CA first", name, certs[0].NotAfter.Format("2006-01-02"))
	}
	return nil
}

// checkPorts fails if another process listens on one of the server's ports,
// because the server could not start. It skips the check if a server is installed
// or runs, as that server holds the ports.
func (n *Node) checkPorts(ctx context.Context) (errs []error) {
	if n.HasFile(manifests.ServerFile(n.Bundle)) || n.serverRuns() {
		return nil
	}
	for _, port := range konnectivity.Server(n.Bundle).Ports {
		err := tryPort(ctx, func(ctx context.Context) (io.Closer, error) {
			var config net.ListenConfig
			return config.Listen(ctx, "tcp", fmt.Sprintf(":%d", port.Number))
		})
		if err == nil {
			continue
		}
		if owner := n.Proc.Listener(port.Number); owner != "" {
			err = errors.New("used by " + owner)
		}
		errs = append(errs, fmt.Errorf("port %d, which the server needs as %s, is taken (%w): stop that, or set %s",
			port.Number, port.Name, err, portField(port.Name)))
	}
	return errs
}

const (
	// portTries and portPause bound how long a port may be in use before it counts as taken: another check of
	// it listens there for an instant, too.
	portTries = 10
	portPause = 20 * time.Millisecond
)

// tryPort fails if a port cannot be listened on, several times in a row.
func tryPort(ctx context.Context, listen func(context.Context) (io.Closer, error)) error {
	for try := 1; ; try++ {
		listener, err := listen(ctx)
		if err == nil {
			return listener.Close()
		}
		if try == portTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(portPause):
		}
	}
}

func (n *Node) serverRuns() bool {
	c := konnectivity.Server(n.Bundle)
	server := kubelet.Program{Name: path.Base(c.Command[0]), Args: component.Args(c.Flags)}
	return len(n.Proc.Find(&server, true)) > 0
}

func portField(name string) string {
	switch name {
	case konnectivity.PortAgent:
		return "konnectivity.serverAddresses[0].port"
	case konnectivity.PortAdmin:
		return "konnectivity.server.adminPort"
	case konnectivity.PortHealth:
		return "konnectivity.server.healthPort"
	case konnectivity.PortState:
		return "tunnelAPI.statePort"
	}
	return "konnectivity.transport.tcp.url"
}
