// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
)

// planner determines what an installation would change and every reason why it would
// fail. It changes nothing.
type planner struct {
	*node
	j        *journal.Journal
	errs     []error
	ca       *authority
	caErr    error
	newState *State
}

// planInstall returns the journal of an installation. Its error lists every reason
// against the installation, one per line.
func (n *node) planInstall(ctx context.Context) (*journal.Journal, error) {
	p := &planner{node: n, j: &journal.Journal{Operation: OpInstall, Phase: journal.PhasePreparing, Desired: n.desired(), Started: n.opts.Now()}}
	p.newState = &State{Bundle: n.bundle}
	if n.state != nil {
		p.newState = n.state.Clone()
		p.newState.Bundle = n.bundle
	}
	p.newState.ServerOnly = n.opts.ServerOnly && p.newState.Manifest.Empty()
	p.preflight(ctx)
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...) // later checks would only repeat these errors
	}
	p.j.Cluster = n.cluster(ctx)
	p.newState.Cluster = p.j.Cluster
	p.planFiles()
	p.planAPIServer()
	if !n.opts.LeaveKubeadmConfig && !n.opts.ServerOnly {
		p.planKubeadm(ctx)
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	p.j.Steps = []Step{StepPKI, StepEgress, StepServer, StepAPIServer, StepKubeadm}
	p.newState.Version, p.newState.Installed = version.Get().Version, n.opts.Now().UTC()
	for _, d := range p.j.Dirs {
		p.newState.Dirs = append(p.newState.Dirs, d.Path)
	}
	p.j.State = p.newState
	return p.j, nil
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

func (p *planner) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// wanted is a file that should be on the node.
type wanted struct {
	step   Step
	path   string
	mode   fs.FileMode
	secret bool
	// data is the content. If make is set, it produces the content on demand, because
	// that is expensive.
	data []byte
	make func() ([]byte, error)
	// good returns nil if an existing file is usable, or else the reason why not.
	good func(data []byte) error
	// advice tells the user what to do about an unusable file.
	advice string
}

// want plans one file. It creates a missing file, replaces an earlier version that
// fairlead installed, keeps a usable file, and refuses to overwrite a file that
// another program or a person wrote.
func (p *planner) want(w wanted) {
	existing, err := p.Read(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		p.parents(w.path)
		p.put(w, nodefs.Absent, nil)
		return
	}
	now, fpErr := p.Fingerprint(w.path)
	if err != nil || fpErr != nil {
		p.fail(fmt.Errorf("%s: %w: %s", w.path, errors.Join(err, fpErr), w.advice))
		return
	}
	known := p.state.File(w.path)
	reason := w.good(existing)
	switch {
	case reason == nil && w.secret:
		p.tighten(w.path)
	case reason == nil:
	case known != nil && known.Now == now, isEmptyFile(existing):
		p.put(w, now, existing)
	case known != nil:
		p.fail(fmt.Errorf("%s was changed since fairlead installed it (%w): undo that, or move the file away", w.path, reason))
	default:
		p.fail(fmt.Errorf("%s exists, fairlead did not write it, and its content does not fit (%w): %s", w.path, reason, w.advice))
	}
}

// tighten removes the permissions of group and others on a private key. The change is
// made in place: the server's Pod has the kubeconfig mounted as a single file, and a
// file bind mount keeps the old inode.
func (p *planner) tighten(file string) {
	data, err := p.Read(file)
	if err != nil {
		return // the code that needs the file has reported this
	}
	now, mode, err := p.Present(file)
	if err != nil || !isOpen(mode) {
		p.fail(err)
		return
	}
	p.opts.Notef("%s has mode %04o, so other users of this node could read its private key: it gets %04o; "+
		"if that may have happened, issue it again (\"fairlead certs renew\")", file, mode, nodefs.OnlyOwner(mode))
	c := Change{Step: StepPKI, Path: file, Mode: nodefs.OnlyOwner(mode), Data: data, InPlace: true, Secret: true, Old: now, New: nodefs.Fingerprint(data, nodefs.OnlyOwner(mode))}
	p.j.Changes = append(p.j.Changes, c)
	if known := p.newState.File(file); known != nil {
		known.Now = c.New
	}
}

// isOpen reports whether group or others have any permission on a file.
func isOpen(mode fs.FileMode) bool { return mode != nodefs.OnlyOwner(mode) }

// put plans to write a file and to record it in the state.
func (p *planner) put(w wanted, old string, existing []byte) {
	if w.make != nil {
		var err error
		if w.data, err = w.make(); err != nil {
			p.fail(fmt.Errorf("%s: %w", w.path, err))
			return
		}
	}
	c := Change{Step: w.step, Path: w.path, Mode: w.mode, Data: w.data, Secret: w.secret, Old: old, New: nodefs.Fingerprint(w.data, w.mode)}
	f := InstalledFile{Path: w.path, Now: c.New}
	switch known := p.state.File(w.path); {
	case known != nil && (old == known.Now || old == nodefs.Absent):
		f.Backup, f.Was = known.Backup, known.Was
	case old != nodefs.Absent:
		// kubeadm may also have written the file again since the last installation.
		// An older backup may belong to another key, or to another cluster.
		f.Backup, f.Was = journal.BackupName(w.path, old), old
		c.Backup, c.BackupData = f.Backup, existing
	}
	p.j.Changes = append(p.j.Changes, c)
	p.newState.Set(f)
}

// parents plans the directories that a file needs.
func (p *planner) parents(file string) {
	p.directory(path.Dir(file), 0o755)
}

func (p *planner) directory(dir string, mode fs.FileMode) {
	known := slices.ContainsFunc(p.j.Dirs, func(d journal.Directory) bool { return d.Path == dir })
	if known || dir == "/" || p.Exists(dir) {
		return
	}
	p.directory(path.Dir(dir), 0o755)
	p.j.Dirs = append(p.j.Dirs, journal.Directory{Path: dir, Mode: mode})
}

// planFiles plans every file except kube-apiserver's manifest.
func (p *planner) planFiles() {
	out, err := bundle.Render(p.bundle)
	if err != nil {
		p.fail(err)
		return
	}
	if uds := p.bundle.Konnectivity.Transport.UDS; uds != nil {
		// Only root may enter it: any process that can open the socket can reach
		// every node.
		p.directory(path.Dir(uds.Path), 0o700)
	}
	p.planKubeconfig()
	p.planServerCertificate()
	p.planTCP()
	p.planServerProcess(nil)
	for _, f := range out.HostFiles {
		if f.Path == p.bundle.ControlPlane.EgressSelectorFile {
			p.want(wanted{step: StepEgress, path: f.Path, mode: fs.FileMode(f.Mode), data: f.Data,
				good: sameYAML(f.Data), advice: "move it away, or set controlPlane.egressSelectorFile"})
			continue
		}
		p.want(wanted{step: StepServer, path: f.Path, mode: fs.FileMode(f.Mode), data: f.Data,
			good: sameYAML(f.Data), advice: "take it out of the static Pod directory"})
		p.planServerProcess(f.Data)
	}
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
			return errors.New("it says something else than the bundle")
		}
		return nil
	}
}

// clusterHasAgents reports whether the agents' workload exists and has desired Pods.
func (n *node) clusterHasAgents(ctx context.Context) (bool, error) {
	if n.client == nil {
		return false, n.clientErr
	}
	if n.bundle.Konnectivity.Agent.Form == v1alpha1.FormDeployment {
		d, err := n.client.AppsV1().Deployments(n.bundle.Namespace).Get(ctx, konnectivity.AgentName, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return d.Spec.Replicas == nil || *d.Spec.Replicas > 0, nil
	}
	ds, err := n.client.AppsV1().DaemonSets(n.bundle.Namespace).Get(ctx, konnectivity.AgentName, metav1.GetOptions{})
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return ds.Status.DesiredNumberScheduled > 0, nil
}
