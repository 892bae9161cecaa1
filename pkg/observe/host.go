// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/internal/hostpath"
)

// hostFacts reads files of this machine, if it is a control plane node or runs the local cluster.
func (c *collector) hostFacts(context.Context) (HostFacts, error) {
	var out HostFacts
	api, local, err := c.ownAPIServer()
	if err != nil {
		return out, err
	}
	out.Local = local
	server, foreign := c.foreignServer()
	switch {
	case local:
		out.Certificates.Err = check.Skip("a local cluster renews its certificates with every \"fairlead up\"")
	case foreign:
		out.Certificates.Err = check.Skip("the konnectivity-server of this node is not Fairlead's (image %s): FL-HST-006 looks at its files", server.Image)
	default:
		out.Certificates.Value = controlplane.Certificates(controlplane.Options{Bundle: c.s.Bundle, Root: c.Root}, controlplane.WarnBefore)
	}
	if !local {
		out.Own = slices.Concat(c.ownCertificates(api), c.etcdCertificates(), c.kubeconfigCertificates())
	}
	if foreign {
		for _, f := range c.serverCertificates(server) {
			if !slices.ContainsFunc(out.Own, func(own FileCertificate) bool { return own.Path == f.Path }) {
				out.Own = append(out.Own, f)
			}
		}
	}
	if file := api.Flag(apiserver.ConfigFlag, ""); file != "" {
		out.EgressFile = OnHost(api, file)
	}
	out.Egress.Value, out.Egress.Err = c.egress(out.EgressFile)
	if uds := out.Egress.Value.UDS; uds != "" {
		out.Egress.Value.Socket = OnHost(api, uds)
	}
	out.Socket.Value, out.Socket.Err = c.socket(out.Egress)
	return out, nil
}

// ownAPIServer is the kube-apiserver of this machine: that of a local cluster, or that of the static Pod manifest.
func (c *collector) ownAPIServer() (p Program, local bool, err error) {
	for _, p := range Of(c.s.Programs.Value, check.RoleAPIServer) {
		if p.Local {
			return p, true, nil
		}
	}
	pod, file, err := c.staticPod("kube-apiserver")
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, check.Skip("this machine is not a control plane node (%s does not exist): run the command there, too", file)
	}
	if err != nil {
		return p, false, err
	}
	for _, p := range Of(programsOf([]corev1.Pod{pod}, c.s.Names), check.RoleAPIServer) {
		return p, false, nil
	}
	return p, false, fmt.Errorf("%s has no container that runs kube-apiserver", file)
}

// staticPod reads the manifest of a static Pod that kubeadm wrote.
func (c *collector) staticPod(name string) (pod corev1.Pod, file string, err error) {
	file = hostpath.Follow(c.Root, filepath.Join(c.s.Bundle.ControlPlane.ManifestsDir, name+".yaml"))
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrPermission) {
		return pod, file, fmt.Errorf("%w: run the command with sudo", err)
	}
	if err != nil {
		return pod, file, err
	}
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return pod, file, fmt.Errorf("%s: %w", file, err)
	}
	return pod, file, nil
}

func (c *collector) egress(file string) (Egress, error) {
	if file == "" {
		return Egress{}, check.Skip("kube-apiserver on this node has no --%s", apiserver.ConfigFlag)
	}
	data, err := os.ReadFile(hostpath.Follow(c.Root, file))
	if err != nil {
		return Egress{}, fmt.Errorf("read the egress selector file: %w", err)
	}
	return parseEgress(data)
}

func parseEgress(data []byte) (Egress, error) {
	var config apiserverv1beta1.EgressSelectorConfiguration
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return Egress{}, fmt.Errorf("the egress selector file: %w", err)
	}
	for _, s := range config.EgressSelections {
		if s.Name != apiserver.Selection {
			continue
		}
		out := Egress{Selected: true, Protocol: string(s.Connection.ProxyProtocol)}
		if t := s.Connection.Transport; t != nil && t.UDS != nil {
			out.UDS = t.UDS.UDSName
		} else if t != nil && t.TCP != nil {
			out.URL = t.TCP.URL
		}
		return out, nil
	}
	return Egress{}, nil
}

func (c *collector) socket(egress Fact[Egress]) (Socket, error) {
	if egress.Err != nil {
		return Socket{}, egress.Err
	}
	path := egress.Value.Socket
	if path == "" {
		return Socket{}, check.Skip("kube-apiserver reaches the server over TCP")
	}
	file := hostpath.Follow(c.Root, path)
	info, err := os.Stat(file)
	if err != nil {
		return Socket{}, fmt.Errorf("the socket between kube-apiserver and konnectivity-server: %w", err)
	}
	parent, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return Socket{}, err
	}
	out := Socket{Path: path, Mode: uint32(info.Mode().Perm()), IsSocket: info.Mode()&fs.ModeSocket != 0, Parent: uint32(parent.Mode().Perm())}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		out.Owner, out.Group = stat.Uid, stat.Gid
	}
	return out, nil
}
