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
	"github.com/fairlead-dev/fairlead/pkg/version"
)

// planner finds out what an installation would change, and everything that
// speaks against it, without changing anything.
type planner struct {
	*node
	j        *journal
	errs     []error
	ca       *authority
	caErr    error
	newState *State
}

// planInstall returns the journal of an installation. Its error has everything
// that speaks against it, a line each.
func (n *node) planInstall(ctx context.Context) (*journal, error) {
	p := &planner{node: n, j: &journal{Operation: OpInstall, Phase: phasePreparing, Desired: n.desired(), Started: n.opts.Now()}}
	p.newState = &State{Bundle: n.bundle}
	if n.state != nil {
		p.newState = n.state.clone()
		p.newState.Bundle = n.bundle
	}
	p.newState.ServerOnly = n.opts.ServerOnly && p.newState.Manifest.Empty()
	p.preflight(ctx)
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...) // what follows would only repeat them
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

// desired identifies what was asked for, with the content of the files given.
func (n *node) desired() string {
	asked := []any{n.bundle, n.opts.ServerOnly, n.opts.LeaveKubeadmConfig, n.opts.Server}
	for _, file := range []string{n.opts.ServerKubeconfig, n.opts.CACert, n.opts.CAKey} {
		data, _ := os.ReadFile(file) // what cannot be read is refused where it is used
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

// nothingToDo tells whether the node is as it should be.
func (j *journal) nothingToDo() bool {
	return len(j.Changes) == 0 && j.Kubeadm == nil && len(j.Dirs) == 0
}

// wanted is a file that should be on the node.
type wanted struct {
	step   Step
	path   string
	mode   fs.FileMode
	secret bool
	// data is the content; make is asked for it where it takes effort.
	data []byte
	make func() ([]byte, error)
	// good says whether a file that is there already will do, and if not, why.
	good func(data []byte) error
	// advice for one that will not.
	advice string
}

// want plans one file: it is made, replaced if it is an earlier version of our
// own, kept if it will do, and refused if it is somebody else's.
func (p *planner) want(w wanted) {
	existing, err := p.read(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		p.parents(w.path)
		p.put(w, absent, nil)
		return
	}
	now, fpErr := p.fingerprint(w.path)
	if err != nil || fpErr != nil {
		p.fail(fmt.Errorf("%s: %w: %s", w.path, errors.Join(err, fpErr), w.advice))
		return
	}
	known := p.state.file(w.path)
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
		p.fail(fmt.Errorf("%s is in the way: fairlead did not write it, and it will not do (%w): %s", w.path, reason, w.advice))
	}
}

// tighten takes the right to read a private key away from everybody but its owner.
// The file stays the same one, as the server has the kubeconfig mounted by itself
// (KON-24).
func (p *planner) tighten(file string) {
	data, err := p.read(file)
	if err != nil {
		return // whoever needs it has said so
	}
	now, mode, err := p.present(file)
	if err != nil || !isOpen(mode) {
		p.fail(err)
		return
	}
	p.opts.Notef("%s has mode %04o, so that others on this node could read its private key: it gets %04o; "+
		"if somebody may have done that, issue it again (\"fairlead certs renew\")", file, mode, onlyOwner(mode))
	c := Change{Step: StepPKI, Path: file, Mode: onlyOwner(mode), Data: data, InPlace: true, Secret: true, Old: now, New: fingerprint(data, onlyOwner(mode))}
	p.j.Changes = append(p.j.Changes, c)
	if known := p.newState.file(file); known != nil {
		known.Now = c.New
	}
}

// isOpen tells whether others than the owner may do something with a file.
func isOpen(mode fs.FileMode) bool { return mode != onlyOwner(mode) }

func onlyOwner(mode fs.FileMode) fs.FileMode { return mode &^ 0o077 }

// put plans to write a file.
func (p *planner) put(w wanted, old string, existing []byte) {
	if w.make != nil {
		var err error
		if w.data, err = w.make(); err != nil {
			p.fail(fmt.Errorf("%s: %w", w.path, err))
			return
		}
	}
	c := Change{Step: w.step, Path: w.path, Mode: w.mode, Data: w.data, Secret: w.secret, Old: old, New: fingerprint(w.data, w.mode)}
	f := InstalledFile{Path: w.path, Now: c.New}
	switch known := p.state.file(w.path); {
	case known != nil && (old == known.Now || old == absent):
		f.Backup, f.Was = known.Backup, known.Was
	case old != absent:
		// Also where kubeadm has made the file anew since the last installation: what
		// was before that may belong to another key, or another cluster.
		f.Backup, f.Was = backupName(w.path, old), old
		c.Backup, c.BackupData = f.Backup, existing
	}
	p.j.Changes = append(p.j.Changes, c)
	p.newState.set(f)
}

// parents plans the directories that a file needs.
func (p *planner) parents(file string) {
	p.directory(path.Dir(file), 0o755)
}

func (p *planner) directory(dir string, mode fs.FileMode) {
	known := slices.ContainsFunc(p.j.Dirs, func(d Directory) bool { return d.Path == dir })
	if known || dir == "/" || p.exists(dir) {
		return
	}
	p.directory(path.Dir(dir), 0o755)
	p.j.Dirs = append(p.j.Dirs, Directory{dir, mode})
}

// planFiles plans everything but kube-apiserver's manifest.
func (p *planner) planFiles() {
	out, err := bundle.Render(p.bundle)
	if err != nil {
		p.fail(err)
		return
	}
	if uds := p.bundle.Konnectivity.Transport.UDS; uds != nil {
		// Root's alone: whoever opens the socket can reach every node (KON-48).
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

// sameYAML accepts a file that says the same.
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

// clusterHasAgents tells whether the agents' workload is there and wants Pods.
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
