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
	case reason == nil:
	case known != nil && known.Now == now, isEmptyFile(existing):
		p.put(w, now, existing)
	case known != nil:
		p.fail(fmt.Errorf("%s was changed since fairlead installed it (%w): undo that, or move the file away", w.path, reason))
	default:
		p.fail(fmt.Errorf("%s is in the way: fairlead did not write it, and it will not do (%w): %s", w.path, reason, w.advice))
	}
}

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

// planServerProcess says which server is to be waited for: before the change the
// one of the manifest that is there, after it the one of the manifest given.
func (p *planner) planServerProcess(manifest []byte) {
	of := func(data []byte) *process {
		pod, err := decodePod(data)
		if err != nil || len(pod.Spec.Containers) == 0 {
			return nil
		}
		program := programOf(pod.Spec.Containers[0])
		program.Health = fmt.Sprintf("http://127.0.0.1:%s/healthz", flag(program.Args, "health-port"))
		return program
	}
	w := &p.j.Wait
	if data, err := p.read(serverManifest(p.bundle)); err == nil {
		w.OldServer = of(data)
	}
	if manifest != nil {
		w.NewServer = of(manifest)
	}
	if w.OldServer != nil && w.NewServer != nil {
		w.OldServer, w.NewServer = w.OldServer.without(w.NewServer), w.NewServer.without(w.OldServer)
	}
}

func serverManifest(b *v1alpha1.Bundle) string {
	return path.Join(b.ControlPlane.ManifestsDir, konnectivity.ServerName+".yaml")
}

func serverSelector(b *v1alpha1.Bundle) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: konnectivity.Server(b).Selector})
}

// planAPIServer plans kube-apiserver's manifest.
func (p *planner) planAPIServer() {
	now := programOf(p.container)
	now.Health = "https://" + p.address + "/readyz"
	p.j.Wait.OldAPIServer, p.j.Wait.NewAPIServer = now, now
	if p.opts.ServerOnly {
		return
	}
	base, err := p.withoutEarlier()
	if err != nil {
		p.fail(err)
		return
	}
	data, _, err := AddToManifest(base, p.bundle)
	if err != nil {
		p.fail(fmt.Errorf("%s: %w", p.manifestPath, err))
		return
	}
	pod, err := decodePod(data)
	if err != nil {
		p.fail(err)
		return
	}
	// All of it, also what kubeadm or a person had put there: it has to go with the
	// files that it names.
	if p.newState.Manifest, err = tunnelPart(pod, p.bundle); err != nil || bytes.Equal(data, p.manifest) {
		p.fail(err)
		return
	}
	after := programOf(pod.Spec.Containers[apiServerIndex(pod)])
	after.Health = now.Health
	p.j.Wait.OldAPIServer, p.j.Wait.NewAPIServer = now.without(after), after.without(now)
	p.putManifest(data, base)
}

// withoutEarlier is the manifest without what an earlier installation added, which
// may have been for another bundle.
func (p *planner) withoutEarlier() ([]byte, error) {
	if p.state == nil || p.state.Manifest.Empty() {
		return p.manifest, nil
	}
	if _, add, err := AddToManifest(p.manifest, p.bundle); err == nil && add.Empty() {
		return p.manifest, nil // all that is needed is there
	}
	return RemoveFromManifest(p.manifest, p.state.Manifest)
}

// putManifest plans the manifest; base is what to come back to.
func (p *planner) putManifest(data, base []byte) {
	now, err := p.fingerprint(p.manifestPath)
	if err != nil {
		p.fail(err)
		return
	}
	mode := modeOf(now)
	c := Change{Step: StepAPIServer, Path: p.manifestPath, Mode: mode, Data: data, Old: now, New: fingerprint(data, mode)}
	f := InstalledFile{Path: p.manifestPath, Now: c.New, Was: fingerprint(base, mode)}
	f.Backup = backupName(p.manifestPath, f.Was)
	// Since the last installation kubeadm or a person may have written it anew:
	// what counts is the manifest that is there now.
	if known := p.state.file(p.manifestPath); known != nil && known.Was == f.Was {
		f.Backup = known.Backup
	} else {
		c.Backup, c.BackupData = f.Backup, base
	}
	p.j.Changes = append(p.j.Changes, c)
	p.newState.set(f)
}

// modeOf is the mode in a fingerprint.
func modeOf(fp string) fs.FileMode {
	var mode fs.FileMode
	_, _ = fmt.Sscanf(fp[len(fp)-4:], "%o", &mode)
	return mode
}

// planKubeadm plans kubeadm's stored configuration.
func (p *planner) planKubeadm(ctx context.Context) {
	before, err := p.clusterConfiguration(ctx)
	if err != nil {
		p.fail(fmt.Errorf("%w: %w", errKubeadmConfig, err))
		return
	}
	base, err := p.withoutEarlierAdditions(before)
	if err != nil {
		p.fail(err)
		return
	}
	after, added, err := addToClusterConfiguration(base, p.bundle)
	if err != nil {
		p.fail(err)
		return
	}
	if len(added) == 0 && p.newState.Kubeadm == nil {
		// If other nodes run servers, one of them has put it there; else a person.
		if others, err := p.otherServers(ctx); err == nil && len(others) > 0 {
			_, all, err := addToClusterConfiguration("{}", p.bundle)
			p.fail(err)
			p.newState.Kubeadm = &kubeadmState{Additions: all, Shared: true}
		}
	}
	if after == before {
		return
	}
	if err := p.setClusterConfiguration(ctx, before, after, true); err != nil {
		p.fail(fmt.Errorf("%w: %w", errKubeadmConfig, err))
		return
	}
	p.j.Kubeadm = &kubeadmChange{Before: before, After: after}
	p.newState.Kubeadm = &kubeadmState{kubeadmChange: kubeadmChange{Before: base, After: after}, Additions: added}
}

// withoutEarlierAdditions is the stored configuration without what an earlier
// installation added for another bundle; to the byte what it was before the first
// one, if nobody has changed it since.
func (p *planner) withoutEarlierAdditions(text string) (string, error) {
	var k *kubeadmState
	if p.state != nil {
		k = p.state.Kubeadm
	}
	if k == nil {
		return text, nil
	}
	_, all, err := addToClusterConfiguration("{}", p.bundle)
	if err != nil {
		return "", err
	}
	_, missing, err := addToClusterConfiguration(text, p.bundle)
	if err == nil && len(missing) == 0 && all.has(k.Additions) {
		return text, nil // all that is needed is there, and nothing else
	}
	if text == k.After && !k.Shared {
		return k.Before, nil
	}
	return removeFromClusterConfiguration(text, k.Additions)
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
