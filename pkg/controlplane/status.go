// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Status is the result of Inspect.
type Status struct {
	// Installed by fairlead; Version and Since are those of the installation.
	Installed  bool      `json:"installed"`
	ServerOnly bool      `json:"serverOnly,omitempty"`
	Version    string    `json:"version,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Provider created this node together with the tunnel: "kind" for "fairlead up
	// --provider kind". WithoutTunnel: its bundle has no tunnel.
	Provider      string `json:"provider,omitempty"`
	WithoutTunnel bool   `json:"withoutTunnel,omitempty"`
	// Interrupted is the operation that was interrupted; empty for none.
	Interrupted string `json:"interrupted,omitempty"`
	// Node is the node's name.
	Node string `json:"node"`
	// Files of the installation.
	Files []FileStatus `json:"files,omitempty"`
	// APIServer and Server are the two programs.
	APIServer ProgramStatus `json:"apiServer"`
	Server    ProgramStatus `json:"server"`
	// Certificates that expire, see [Certificates].
	Certificates []Certificate `json:"certificates"`
	// Problems lists everything that is wrong; empty if there are none.
	Problems []string `json:"problems,omitempty"`
}

// FileStatus is one file of the installation.
type FileStatus struct {
	Path string `json:"path"`
	// State is one of the constants below.
	State string `json:"state"`
}

// The states of a file.
const (
	FileAsInstalled = "as installed"
	FileChanged     = "changed"
	// FileRenewed is a certificate that was renewed since, for example by kubeadm, and
	// is valid.
	FileRenewed = "renewed"
	FileMissing = "missing"
)

// ProgramStatus is one of the two programs of the tunnel on a control plane node.
type ProgramStatus struct {
	// Image in its manifest.
	Image string `json:"image,omitempty"`
	// Process is its process ID; 0 if no process runs with the manifest's flags.
	Process int `json:"process,omitempty"`
	// Tunnel: kube-apiserver's flags make it use the tunnel.
	Tunnel bool `json:"tunnel,omitempty"`
	// Health is ok, or why it is not healthy.
	Health string `json:"health"`
	// Ready is ok, or why it is not ready. The server is ready when an agent is
	// connected.
	Ready string `json:"ready,omitempty"`
}

const ok = "ok"

// Inspect inspects this node and changes nothing. It fails only if there is no control
// plane to inspect.
func Inspect(ctx context.Context, o Options) (Status, error) {
	n := newNode(o.defaulted())
	state, err := n.readState()
	if err != nil {
		return Status{}, err
	}
	if n, err = n.asMade(state); err != nil {
		return Status{}, err
	}
	if err := n.checkNode(); err != nil {
		return Status{}, err
	}
	n.connect()
	s := Status{Node: n.ownName, Provider: Provider(n.Root), Certificates: n.certs().Inspect(WarnBefore)}
	if state.OnlyKubeadm() {
		s.Problems = append(s.Problems, kubeadmLeft)
	} else if state != nil {
		s.Installed, s.Version, s.Since, s.ServerOnly = true, state.Version, state.Installed, state.ServerOnly
	}
	s.inspectJournal(n)
	if err := n.checkCluster(ctx); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	s.inspectFiles(n)
	s.inspectKubeadm(ctx, n)
	s.inspectPrograms(ctx, n)
	s.inspectProvided(n)
	for _, c := range s.Certificates {
		// If nothing is installed, the certificates need not match a bundle.
		if c.State != CertGood && (s.Installed || n.HasFile(manifests.ServerFile(n.bundle))) {
			s.Problems = append(s.Problems, fmt.Sprintf("certificate %s: %s: %s", c.Path, c.State, c.Problem))
		}
	}
	return s, nil
}

func (s *Status) inspectFiles(n *node) {
	if n.state == nil {
		return
	}
	for _, f := range n.state.Files {
		fs := FileStatus{Path: f.Path, State: FileAsInstalled}
		now, err := n.Fingerprint(f.Path)
		switch {
		case err != nil || now == nodefs.Absent:
			fs.State = FileMissing
		case f.Path == n.manifestPath:
			if _, add, err := manifests.Add(n.manifest, n.bundle); err != nil || !add.Empty() && !s.ServerOnly {
				fs.State = FileChanged
			}
		case now != f.Now && s.good(f.Path):
			fs.State = FileRenewed
		case now != f.Now:
			fs.State = FileChanged
		}
		if fs.State == FileChanged || fs.State == FileMissing {
			s.Problems = append(s.Problems, fmt.Sprintf("%s is %s: \"fairlead controlplane install\" says what to do about it", f.Path, fs.State))
		}
		s.Files = append(s.Files, fs)
	}
}

// inspectJournal reports whether a run was interrupted.
func (s *Status) inspectJournal(n *node) {
	if j, err := n.interrupted(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	} else if j != nil {
		s.Interrupted = string(j.Operation)
		s.Problems = append(s.Problems, j.Advice())
	}
}

// inspectKubeadm compares kubeadm's stored configuration with the recorded one, if the
// installation changed it.
func (s *Status) inspectKubeadm(ctx context.Context, n *node) {
	if !s.Installed || n.state.Kubeadm == nil {
		return
	}
	if err := n.api().CheckTunnel(ctx); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
}

// good reports whether a file contains certificates and all of them are good.
func (s *Status) good(p string) bool {
	found := false
	for _, c := range s.Certificates {
		if c.Path != p {
			continue
		}
		if c.State != CertGood {
			return false
		}
		found = true
	}
	return found
}

func (s *Status) inspectPrograms(ctx context.Context, n *node) {
	api := kubelet.ProgramOf(n.container)
	s.APIServer = ProgramStatus{Image: n.container.Image, Health: word(n.healthy(ctx, "https://"+n.address+"/readyz"))}
	_, add, err := manifests.Add(n.manifest, n.bundle)
	s.APIServer.Tunnel = err == nil && add.Empty()
	s.APIServer.Process = first(n.proc().Find(api, true))
	if s.APIServer.Health != ok {
		s.Problems = append(s.Problems, "kube-apiserver: "+s.APIServer.Health)
	}
	data, err := n.Read(manifests.ServerFile(n.bundle))
	if err != nil {
		s.Server.Health = "not on this node"
		return
	}
	pod, err := manifests.Decode(data)
	if err != nil || len(pod.Spec.Containers) == 0 {
		s.Server.Health = errors.Join(err, errors.New("its manifest cannot be read")).Error()
		s.Problems = append(s.Problems, konnectivity.ServerName+": "+s.Server.Health)
		return
	}
	container := pod.Spec.Containers[0]
	program := kubelet.ProgramOf(container)
	s.Server = ProgramStatus{Image: container.Image, Process: first(n.proc().Find(program, true)),
		Health: word(n.healthy(ctx, serverHealth(program.Args, "/healthz"))), Ready: word(n.healthy(ctx, serverHealth(program.Args, "/readyz")))}
	for _, p := range []string{s.Server.Health, s.Server.Ready} {
		if p != ok {
			s.Problems = append(s.Problems, konnectivity.ServerName+": "+p)
			break
		}
	}
}

func word(err error) string {
	if err != nil {
		return err.Error()
	}
	return ok
}

func first(found []kubelet.Instance) int {
	if len(found) == 0 {
		return 0
	}
	return found[0].PID
}
