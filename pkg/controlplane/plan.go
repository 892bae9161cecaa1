// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"reflect"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/fileplan"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
)

// planner determines what a run would change and every reason why it would fail. It
// changes nothing.
type planner struct {
	*node
	*fileplan.Plan

	// egressHash is of the bundle's egress selector configuration, and egressRead is of
	// the one that kube-apiserver has started with; empty if it uses none, or if that is
	// not known.
	egressHash, egressRead string
}

// newPlanner returns a planner that adds to the journal; after is the state to
// record.
func newPlanner(n *node, j *journal.Journal, after *State) *planner {
	return &planner{node: n, Plan: &fileplan.Plan{Node: n.Host, Journal: j, Before: n.state, After: after, Notef: n.opts.Notef}}
}

// planInstall returns the journal of an installation. Its error lists every reason
// against the installation, one per line.
func (n *node) planInstall(ctx context.Context) (*journal.Journal, error) {
	j := &journal.Journal{Operation: OpInstall, Phase: journal.PhasePreparing, Desired: n.desired(), Started: n.opts.Now()}
	after := &State{}
	if n.state != nil {
		after = n.state.Clone()
	}
	after.Bundle = n.bundle
	after.ServerOnly = n.opts.ServerOnly && after.Manifest.Empty()
	p := newPlanner(n, j, after)
	p.preflight(ctx)
	if err := p.Err(); err != nil {
		return nil, err // later checks would only repeat these errors
	}
	j.Cluster = n.clusterID(ctx)
	after.Cluster = j.Cluster
	p.planFiles()
	p.planServerRestart(ctx)
	p.planAPIServer()
	if !n.opts.LeaveKubeadmConfig && !n.opts.ServerOnly {
		var err error
		j.Kubeadm, after.Kubeadm, err = n.api().AddTunnel(ctx, after.Kubeadm)
		p.Fail(err)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	j.Steps = []Step{StepPKI, StepEgress, StepServer, StepAPIServer, StepKubeadm}
	after.Version, after.Installed = version.Get().Version, n.opts.Now().UTC()
	for _, d := range j.Dirs {
		after.Dirs = append(after.Dirs, d.Path)
	}
	j.State = after
	return j, nil
}

// desired returns a hash of the request, including the content of the given files.
func (n *node) desired() string {
	asked := []any{n.bundle, n.opts.ServerOnly, n.opts.LeaveKubeadmConfig, n.opts.Server}
	for _, file := range []string{n.opts.ServerKubeconfig, n.opts.CACert, n.opts.CAKey} {
		data, _ := os.ReadFile(file) // an unreadable file is refused where it is used
		asked = append(asked, sha256.Sum256(data))
	}
	data, err := json.Marshal(asked)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// planFiles plans every file except kube-apiserver's manifest.
func (p *planner) planFiles() {
	out, err := bundle.Render(p.bundle)
	if err != nil {
		p.Fail(err)
		return
	}
	if uds := p.bundle.Konnectivity.Transport.UDS; uds != nil {
		// Only root may enter it: any process that can open the socket can reach
		// every node.
		p.Directory(path.Dir(uds.Path), 0o700)
	}
	p.certPlanner(p.Plan).Install()
	p.planServerProcess(nil)
	for _, f := range out.HostFiles {
		if f.Path == p.bundle.ControlPlane.EgressSelectorFile {
			p.planEgress(f)
			continue
		}
		p.Want(fileplan.File{Step: StepServer, Path: f.Path, Mode: fs.FileMode(f.Mode), Data: f.Data,
			Good: sameServer(f.Data), Advice: "take it out of the static Pod directory"})
		p.planServerProcess(f.Data)
	}
	p.planOldServer(out.HostFiles)
}

// sameYAML accepts a file with the same content, whatever its formatting.
func sameYAML(want []byte) func([]byte) error {
	return func(data []byte) error {
		if bytes.Equal(data, want) {
			return nil
		}
		var a, b any
		if err := sigsyaml.Unmarshal(data, &a); err != nil {
			return err
		}
		if err := sigsyaml.Unmarshal(want, &b); err != nil || !reflect.DeepEqual(a, b) {
			return errors.New("its content does not match the bundle")
		}
		return nil
	}
}
