// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"slices"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/fileplan"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// planServerProcess records which server processes to wait for: the old one from
// the manifest on the node, and the new one from the given manifest.
func (p *planner) planServerProcess(manifest []byte) {
	of := func(data []byte) *kubelet.Program {
		pod, err := manifests.Decode(data)
		if err != nil || len(pod.Spec.Containers) == 0 {
			return nil
		}
		program := kubelet.ProgramOf(pod.Spec.Containers[0])
		program.Health = serverHealth(program.Args, "/healthz")
		return program
	}
	w := &p.Journal.Wait
	if data, err := p.Read(manifests.ServerFile(p.bundle)); err == nil {
		w.OldServer = of(data)
	}
	if manifest != nil {
		w.NewServer = of(manifest)
	}
	if w.OldServer != nil && w.NewServer != nil {
		w.OldServer, w.NewServer = w.OldServer.Excluding(w.NewServer), w.NewServer.Excluding(w.OldServer)
	}
}

// serverHealth returns the URL of a path on the health port of a server with these
// arguments.
func serverHealth(args []string, path string) string {
	return "http://" + net.JoinHostPort(konnectivity.HealthHost(kubelet.Flag(args, "health-bind-address")), kubelet.Flag(args, "health-port")) + path
}

// planAPIServer plans the change of kube-apiserver's manifest.
func (p *planner) planAPIServer() {
	now := kubelet.ProgramOf(p.container)
	now.Health = "https://" + p.address + "/readyz"
	p.Journal.Wait.OldAPIServer, p.Journal.Wait.NewAPIServer = now, now
	if p.opts.ServerOnly {
		return
	}
	base, err := p.withoutEarlier()
	if err != nil {
		p.Fail(err)
		return
	}
	data, _, err := manifests.Add(base, p.bundle)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", p.manifestPath, err))
		return
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		p.Fail(err)
		return
	}
	// Record all of it, including what kubeadm or a person had added: an
	// uninstallation must remove it together with the files that it names.
	if p.After.Manifest, err = manifests.TunnelPart(pod, p.bundle); err != nil {
		p.Fail(err)
		return
	}
	p.After.EgressHash = p.egressHash
	if bytes.Equal(data, p.manifest) {
		p.planEgressRead()
		return
	}
	after := kubelet.ProgramOf(pod.Spec.Containers[manifests.APIServerIndex(pod)])
	after.Health = now.Health
	p.Journal.Wait.OldAPIServer, p.Journal.Wait.NewAPIServer = now.Excluding(after), after.Excluding(now)
	p.PutManifest(p.manifestPath, data, base)
}

// planEgressRead plans a restart of kube-apiserver, whose manifest stays as it is, if it has
// started with another egress selector configuration than the bundle's: it reads that file
// only when it starts.
func (p *planner) planEgressRead() {
	replaced := slices.ContainsFunc(p.Journal.Changes, func(c Change) bool { return c.Step == StepEgress && c.Old != nodefs.Absent })
	if !replaced && (p.egressRead == "" || p.egressRead == p.egressHash) {
		return
	}
	now, _, err := p.Present(p.manifestPath)
	if err != nil {
		p.Fail(err)
		return
	}
	base, err := p.manifestBefore(now)
	if err != nil {
		p.Fail(err)
		return
	}
	data, err := manifests.Annotate(p.manifest, manifests.EgressHash, p.egressHash)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", p.manifestPath, err))
		return
	}
	if !bytes.Equal(data, p.manifest) {
		p.PutManifest(p.manifestPath, data, base)
	}
}

// planEgress plans the egress selector configuration, and determines what kube-apiserver has
// read of it, if it uses the tunnel.
func (p *planner) planEgress(f bundle.File) {
	p.egressHash = selectorHash(f.Data)
	if p.state != nil {
		p.egressRead = p.state.EgressHash
	}
	uses := manifests.EgressSelector(p.pod) == "--"+apiserver.ConfigFlag+"="+f.Path
	if data, err := p.Read(f.Path); err == nil && uses && p.egressRead == "" {
		p.egressRead = selectorHash(data)
	}
	p.After.EgressHash = p.egressRead
	p.Want(fileplan.File{Step: StepEgress, Path: f.Path, Mode: fs.FileMode(f.Mode), Data: f.Data,
		Good: sameYAML(f.Data), Advice: "move it away, or set controlPlane.egressSelectorFile"})
}

// selectorHash returns a hash of a configuration that does not depend on the formatting.
func selectorHash(config []byte) string {
	canonical, err := sigsyaml.YAMLToJSON(config)
	if err != nil {
		canonical = config
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}

// withoutEarlier returns the manifest without what an earlier installation added,
// possibly for another bundle.
func (p *planner) withoutEarlier() ([]byte, error) {
	if p.state == nil || p.state.Manifest.Empty() {
		return p.manifest, nil
	}
	if _, add, err := manifests.Add(p.manifest, p.bundle); err == nil && add.Empty() {
		return p.manifest, nil // everything needed is there
	}
	return manifests.Remove(p.manifest, p.state.Manifest)
}
