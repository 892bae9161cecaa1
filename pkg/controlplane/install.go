package controlplane

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/version"
)

// Result says what a run has done.
type Result struct {
	// Changed tells whether anything was changed.
	Changed bool `json:"changed"`
	// Resumed: an earlier run had been interrupted, and this one completed it.
	Resumed bool `json:"resumed,omitempty"`
	// Files that were made, replaced or removed.
	Files []string `json:"files,omitempty"`
	// Left are files that Uninstall did not touch, and why.
	Left []string `json:"left,omitempty"`
	// EgressSelector is the flag that kube-apiserver has after Uninstall although
	// Install did not put it there; empty if it dials nodes directly.
	EgressSelector string `json:"egressSelector,omitempty"`
}

// Install brings the tunnel into this node's control plane, or brings an earlier
// installation in line with the bundle. If anything fails, or ctx is cancelled,
// it puts everything back and returns [ErrRolledBack]; if that could not even
// begin, [ErrPreflight]. A run that was killed is completed, if it was for the
// same bundle, and else rolled back first.
func Install(ctx context.Context, o Options) (Result, error) {
	n := newNode(o.defaulted())
	if err := n.checkNode(); err != nil {
		return Result{}, preflightError(err)
	}
	unlock, err := lock(n.host)
	if err != nil {
		return Result{}, preflightError(err)
	}
	defer unlock()
	if result, done, err := n.resume(ctx, OpInstall, n.desired()); err != nil || done {
		return result, err
	}
	n.takeOver(ctx)
	j, err := n.planInstall(ctx)
	if err != nil {
		return Result{}, preflightError(err)
	}
	return n.run(ctx, j)
}

func preflightError(err error) error {
	return fmt.Errorf("%w: %w", ErrPreflight, explain(err))
}

// run makes a planned change.
func (n *node) run(ctx context.Context, j *journal) (Result, error) {
	if j.nothingToDo() && (j.State == nil) == (n.state == nil) {
		return Result{}, n.confirm(ctx, j)
	}
	t := &transaction{host: n.host, journal: j, after: n.opts.after}
	err := cluster.Step(n.opts.Progress, "Laying new files ready", func() (string, error) {
		return fmt.Sprintf("%d files", len(j.Changes)), t.prepare()
	})
	if err != nil {
		return Result{}, preflightError(err)
	}
	return n.execute(ctx, t)
}

// confirm is for a node on which everything is in place: it must work, too.
func (n *node) confirm(ctx context.Context, j *journal) error {
	if j.Operation != OpInstall {
		return nil
	}
	e := &nodeEffects{node: n, journal: j, since: time.Now()}
	for _, step := range []Step{StepServer, StepAPIServer} {
		if err := e.made(ctx, step); err != nil {
			return fmt.Errorf("everything is installed, but %w", err)
		}
	}
	return nil
}

// execute goes forward, and back if that fails.
func (n *node) execute(ctx context.Context, t *transaction) (Result, error) {
	result := Result{Changed: true}
	for _, c := range t.Changes {
		result.Files = append(result.Files, c.Path)
	}
	e := &nodeEffects{node: n, journal: t.journal, since: time.Now()}
	err := t.forward(ctx, e)
	if err == nil {
		return result, nil
	}
	if t.Phase == phaseDone {
		return result, fmt.Errorf("everything is in place, but some leftovers could not be removed; run the command again: %w", explain(err))
	}
	return Result{}, n.putBack(ctx, t, err)
}

// putBack undoes a run that failed for a reason. An interrupt does not keep it
// from that.
func (n *node) putBack(ctx context.Context, t *transaction, reason error) error {
	if ctx.Err() != nil {
		reason = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	e := &nodeEffects{node: n, journal: t.journal, since: time.Now(), back: true}
	err := t.back(context.WithoutCancel(ctx), e)
	if err != nil {
		return fmt.Errorf("%w\nputting everything back failed, too: %w\n%s", explain(reason), explain(err), t.putBackAdvice())
	}
	return fmt.Errorf("%w; %w", explain(reason), ErrRolledBack)
}

// resume deals with the journal of a run that was killed: it completes it where
// that is what is asked for now, and else puts everything back. done tells that
// nothing more is to be done.
func (n *node) resume(ctx context.Context, op Operation, desired string) (result Result, done bool, err error) {
	j, err := n.interrupted()
	if err != nil {
		return Result{}, false, err
	}
	if j != nil {
		result, done, err = n.resumeJournal(ctx, j, op, desired)
		if err != nil || done {
			return result, done, err
		}
	}
	n.state, err = n.readState()
	return Result{}, false, err
}

func (n *node) readState() (*State, error) {
	s := &State{}
	found, err := readJSON(n.host, stateFile, s)
	if err != nil || !found {
		return nil, err
	}
	return s, nil
}

func (n *node) resumeJournal(ctx context.Context, j *journal, op Operation, desired string) (Result, bool, error) {
	t := &transaction{host: n.host, journal: j, after: n.opts.after}
	if !n.ofThisCluster(ctx, j.Cluster) {
		return Result{}, false, t.forgetJournal(n.opts.Notef)
	}
	n.opts.Notef("an earlier %s of %s did not end (it was %s)", j.Operation, j.Started.Format(time.DateTime), j.Phase)
	n.connect()
	switch j.Phase {
	case phasePreparing:
		return Result{}, false, explain(t.discard())
	case phaseDone:
		return Result{}, false, explain(t.finish())
	case phaseApplying:
		if j.Operation == op && j.Desired == desired {
			result, err := n.execute(ctx, t)
			result.Resumed = true
			return result, true, err
		}
	}
	t.leaveEdited = j.Phase == phaseRollback
	e := &nodeEffects{node: n, journal: j, since: time.Now(), back: true}
	err := cluster.Step(n.opts.Progress, "Putting back what the earlier "+string(j.Operation)+" changed", func() (string, error) {
		return "", t.back(ctx, &quietEffects{e})
	})
	for _, file := range t.left {
		n.opts.Notef("%s %v: it is left as it is", file, errEdited)
	}
	if err != nil {
		err = fmt.Errorf("putting back what the earlier %s changed failed: %w\n%s", j.Operation, explain(err), j.putBackAdvice())
	}
	return Result{}, false, err
}

// nodeEffects waits for the kubelet and speaks to the API server.
type nodeEffects struct {
	*node
	journal *journal
	since   time.Time
	// back: a failed run is being undone.
	back bool
}

// quietEffects does the same within one step of the progress.
type quietEffects struct{ *nodeEffects }

func (e *quietEffects) unmade(ctx context.Context, step Step) error { return e.undo(ctx, step) }

func (e *nodeEffects) changes(step Step) bool { return e.change(step) != nil }

// change is the first of a step; the steps that wait have one, of a manifest.
func (e *nodeEffects) change(step Step) *Change {
	for i := range e.journal.Changes {
		if c := &e.journal.Changes[i]; c.Step == step {
			return c
		}
	}
	return nil
}

// making implements effects: it notes which processes will have to go, and what
// could not be planned before.
func (e *nodeEffects) making(ctx context.Context, step Step) bool {
	if step == StepKubeadm {
		return e.planKubeadmNow(ctx)
	}
	old, _, o := e.journal.Wait.of(step)
	c := e.change(step)
	if old == nil || c == nil || c.Remove {
		return false
	}
	if now, err := e.fingerprint(c.Path); err != nil || now != c.Old {
		return false // an earlier run has come further, and noted it
	}
	if !e.restarts(c) {
		return false
	}
	o.Before = e.proc().find(old, true)
	if step == StepAPIServer && !e.journal.WasBroken {
		_, err := e.mirror(ctx, apiServer)
		e.journal.Wait.Mirrored = err == nil
	}
	return len(o.Before) > 0 || e.journal.Wait.Mirrored
}

// restarts tells whether the kubelet restarts a program for a change of its
// manifest: not for one of comments or blanks.
func (e *nodeEffects) restarts(c *Change) bool {
	var pods [2]*corev1.Pod
	for i, name := range []string{c.Path, beside(newPrefix, c.Path)} {
		data, err := e.read(name)
		if err != nil {
			return true
		}
		if pods[i], err = decodePod(data); err != nil {
			return true
		}
	}
	return !reflect.DeepEqual(pods[0], pods[1])
}

// unmaking implements effects: it notes which processes are of a manifest that
// will be put back.
func (e *nodeEffects) unmaking() {
	for _, step := range []Step{StepServer, StepAPIServer} {
		_, fresh, o := e.journal.Wait.of(step)
		c := e.change(step)
		if fresh == nil || c == nil {
			continue
		}
		if now, err := e.fingerprint(c.Path); err != nil || now == c.Old {
			continue
		}
		for _, i := range e.proc().find(fresh, true) {
			if !i.among(o.Before) {
				o.During = append(o.During, i)
			}
		}
	}
}

// made implements effects.
func (e *nodeEffects) made(ctx context.Context, step Step) error {
	switch step {
	case StepServer:
		return e.serverMade(ctx)
	case StepAPIServer:
		if !e.changes(step) && e.journal.Operation != OpInstall {
			return nil
		}
		return e.apiServerMade(ctx)
	case StepKubeadm:
		if c := e.journal.Kubeadm; c != nil {
			return cluster.Step(e.opts.Progress, "Updating ConfigMap kubeadm-config", func() (string, error) {
				err := e.setClusterConfiguration(ctx, c.Before, c.After, false)
				e.reached("ConfigMap")
				return "", err
			})
		}
	}
	return nil
}

func (e *nodeEffects) apiServerMade(ctx context.Context) error {
	w := &e.journal.Wait
	broken := false
	err := cluster.Step(e.opts.Progress, "Waiting until kube-apiserver is ready with its flags", func() (string, error) {
		err := e.waitAPIServer(ctx, w.NewAPIServer, w.APIServer.Before)
		if err != nil && e.journal.WasBroken && ctx.Err() == nil {
			e.opts.Notef("kube-apiserver is not ready without the tunnel either: %v", err)
			broken, err = true, nil
		}
		return e.took(), err
	})
	if err == nil && !broken && w.Mirrored {
		e.waitMirror(ctx)
	}
	return err
}

// planKubeadmNow plans what could not be planned while kube-apiserver was broken.
// If it still cannot, the state keeps that part for another uninstallation.
func (e *nodeEffects) planKubeadmNow(ctx context.Context) (learned bool) {
	k := e.journal.KubeadmLater
	if k == nil || e.journal.Kubeadm != nil {
		return false
	}
	change, reason, err := e.withoutTunnel(ctx, k)
	if err != nil {
		e.opts.Notef("%s: %v", kubeadmLeft, err)
		e.journal.State = &State{Version: version.Get().Version, Installed: e.journal.Started.UTC(), Bundle: e.bundle, Cluster: e.journal.Cluster, Kubeadm: k}
		return true
	}
	if reason != "" {
		e.opts.Notef("ConfigMap %s is left as it is: %s", kubeadmConfigMap, reason)
	}
	e.journal.Kubeadm, e.journal.State = change, nil
	return true
}

func (e *nodeEffects) reached(point string) {
	if e.opts.after != nil {
		e.opts.after(point)
	}
}

func (e *nodeEffects) took() string {
	return time.Since(e.since).Round(100 * time.Millisecond).String()
}

func (e *nodeEffects) serverMade(ctx context.Context) error {
	w := &e.journal.Wait
	if e.journal.Operation == OpRenew && !e.changes(StepServer) {
		return nil
	}
	if w.NewServer == nil {
		if w.OldServer == nil || !e.changes(StepServer) {
			return nil
		}
		return cluster.Step(e.opts.Progress, "Waiting until the Konnectivity server has stopped", func() (string, error) {
			return "", e.waitGone(ctx, w.OldServer)
		})
	}
	err := cluster.Step(e.opts.Progress, "Waiting until the Konnectivity server answers", func() (string, error) {
		if err := e.waitFor(ctx, w.NewServer, w.Server.Before); err != nil {
			return "", e.notReady(ctx, konnectivity.ServerName, "konnectivity-server-container", e.since, err)
		}
		return "", nil
	})
	if err != nil || e.opts.ServerOnly || !e.changes(StepAPIServer) {
		return err
	}
	return e.waitForAgent(ctx)
}

// waitForAgent keeps kube-apiserver on direct connections until the tunnel leads
// somewhere, if there are agents to wait for.
func (e *nodeEffects) waitForAgent(ctx context.Context) error {
	if agents, err := e.clusterHasAgents(ctx); err != nil || !agents || e.opts.Force {
		return nil //nolint:nilerr // the preflight check has said what there is to say
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", e.bundle.Konnectivity.Server.HealthPort)
	return cluster.Step(e.opts.Progress, "Waiting until an agent is connected", func() (string, error) {
		err := e.opts.await(ctx, 0, func(ctx context.Context) error { return e.healthy(ctx, url) })
		if err != nil {
			return "", fmt.Errorf("no agent has connected: look at \"kubectl -n %s logs daemonset/%s\": %w", e.bundle.Namespace, konnectivity.AgentName, err)
		}
		return "", nil
	})
}

func (e *nodeEffects) waitAPIServer(ctx context.Context, p *process, others []instance) error {
	if err := e.waitFor(ctx, p, others); err != nil {
		return e.notReady(ctx, apiServer, apiServer, e.since, err)
	}
	return nil
}

// unmade implements effects.
func (e *nodeEffects) unmade(ctx context.Context, step Step) error {
	if step == StepAPIServer && e.changes(step) {
		return cluster.Step(e.opts.Progress, "Putting back kube-apiserver's manifest", func() (string, error) {
			err := e.undo(ctx, step)
			return e.took(), err
		})
	}
	return e.undo(ctx, step)
}

func (e *nodeEffects) undo(ctx context.Context, step Step) error {
	w := &e.journal.Wait
	switch step {
	case StepServer:
		// A server that was not there before need not be waited for.
		if w.OldServer != nil && e.changes(step) {
			return e.waitFor(ctx, w.OldServer, w.Server.During)
		}
	case StepAPIServer:
		if e.changes(step) {
			return e.waitAPIServer(ctx, w.OldAPIServer, w.APIServer.During)
		}
	case StepKubeadm:
		if c := e.journal.Kubeadm; c != nil {
			err := e.setClusterConfiguration(ctx, c.After, c.Before, false)
			e.reached("ConfigMap put back")
			if errors.Is(err, errEdited) {
				e.opts.Notef("%v: it is left as it is", err)
				return nil
			}
			return err
		}
	}
	return nil
}
