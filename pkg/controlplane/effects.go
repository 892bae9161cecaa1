// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/preflight"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// nodeEffects waits for the kubelet and calls the API server.
type nodeEffects struct {
	*node
	journal *journal.Journal
	since   time.Time
	// back means that a failed run is being rolled back.
	back bool
}

// quietEffects does the same within one step of the progress.
type quietEffects struct{ *nodeEffects }

func (e *quietEffects) Unmade(ctx context.Context, step Step) error { return e.undo(ctx, step) }

func (e *nodeEffects) changes(step Step) bool { return e.change(step) != nil }

// change returns the first change of a step. Steps that wait have only one, of a
// manifest.
func (e *nodeEffects) change(step Step) *Change {
	for i := range e.journal.Changes {
		if c := &e.journal.Changes[i]; c.Step == step {
			return c
		}
	}
	return nil
}

// Making implements journal.Effects: it records which processes must be replaced, and plans
// what could not be planned before.
func (e *nodeEffects) Making(ctx context.Context, step Step) bool {
	if step == StepKubeadm {
		learned := e.planKubeadmNow(ctx) || e.journal.Kubeadm != nil && !e.journal.KubeadmBegun
		e.journal.KubeadmBegun = e.journal.Kubeadm != nil
		return learned
	}
	old, _, o := e.journal.Wait.Of(step)
	c := e.change(step)
	if o == nil || c == nil {
		return false
	}
	if now, err := e.Fingerprint(c.Path); err != nil || now != c.Old {
		return false // an earlier run got further, and recorded it
	}
	o.Begun = true
	if old == nil || c.Remove || !e.restarts(c) {
		return true
	}
	o.Before = e.proc().Find(old, true)
	if step == StepAPIServer && !e.journal.WasBroken {
		_, err := e.mirror(apiServer).Get(ctx)
		e.journal.Wait.Mirrored = err == nil
	}
	return true
}

// restarts reports whether the kubelet restarts a program after a change of its
// manifest. It does not if only comments or blanks change.
func (e *nodeEffects) restarts(c *Change) bool {
	var pods [2]*corev1.Pod
	for i, name := range []string{c.Path, nodefs.Beside(nodefs.NewPrefix, c.Path)} {
		data, err := e.Read(name)
		if err != nil {
			return true
		}
		if pods[i], err = manifests.Decode(data); err != nil {
			return true
		}
	}
	return !reflect.DeepEqual(pods[0], pods[1])
}

// Unmaking implements journal.Effects: it records which processes belong to a manifest that
// will be replaced by the earlier one.
func (e *nodeEffects) Unmaking() {
	for _, step := range []Step{StepServer, StepAPIServer} {
		_, fresh, o := e.journal.Wait.Of(step)
		c := e.change(step)
		if fresh == nil || c == nil {
			continue
		}
		if now, err := e.Fingerprint(c.Path); err != nil || now == c.Old {
			continue
		}
		for _, i := range e.proc().Find(fresh, true) {
			if !i.Among(o.Before) {
				o.During = append(o.During, i)
			}
		}
	}
}

// Made implements journal.Effects.
func (e *nodeEffects) Made(ctx context.Context, step Step) error {
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
			return progress.Step(e.opts.Progress, "Updating ConfigMap kubeadm-config", func() (string, error) {
				err := e.api().SetKubeadmConfig(ctx, c.Before, c.After)
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
	err := progress.Step(e.opts.Progress, "Waiting until kube-apiserver is ready with its flags", func() (string, error) {
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

// planKubeadmNow plans the change that could not be planned while kube-apiserver was
// broken. If it still cannot, the state keeps that part for another uninstallation.
func (e *nodeEffects) planKubeadmNow(ctx context.Context) (learned bool) {
	k := e.journal.KubeadmLater
	if k == nil || e.journal.Kubeadm != nil {
		return false
	}
	change, reason, err := e.api().RemoveTunnel(ctx, k)
	if err != nil {
		e.opts.Notef("%s: %v", kubeadmLeft, err)
		e.journal.State = &State{Version: version.Get().Version, Installed: e.journal.Started.UTC(), Bundle: e.bundle, Cluster: e.journal.Cluster, Kubeadm: k}
		return true
	}
	if reason != "" {
		e.opts.Notef("ConfigMap %s: %s", manifests.KubeadmConfigMap, reason)
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
	var err error
	switch {
	case w.NewServer != nil:
		err = progress.Step(e.opts.Progress, "Waiting until the Konnectivity server answers", func() (string, error) {
			if err := e.waitFor(ctx, w.NewServer, w.Server.Before); err != nil {
				return "", e.notReady(ctx, konnectivity.ServerName, "konnectivity-server-container", e.since, err)
			}
			return "", nil
		})
	case w.OldServer != nil && e.changes(StepServer):
		err = progress.Step(e.opts.Progress, "Waiting until the Konnectivity server has stopped", func() (string, error) {
			return "", e.waitGone(ctx, w.OldServer)
		})
	}
	if err != nil || e.opts.ServerOnly || e.journal.Operation != OpInstall || !e.changes(StepAPIServer) {
		return err
	}
	return e.waitForAgent(ctx)
}

// waitForAgent waits until an agent is connected, if the cluster has agents, so that
// kube-apiserver keeps its direct connections until the tunnel works.
func (e *nodeEffects) waitForAgent(ctx context.Context) error {
	if agents, err := e.api().HasAgents(ctx); err != nil || !agents || preflight.Ignored(e.opts.IgnorePreflight).Has(CheckAgents) {
		return nil //nolint:nilerr // the preflight check has reported this
	}
	url := serverHealth(component.Args(konnectivity.Server(e.bundle).Flags), "/readyz")
	return progress.Step(e.opts.Progress, "Waiting until an agent is connected", func() (string, error) {
		err := e.poll(e.opts.Timeout).Until(ctx, 0, func(ctx context.Context) error { return e.healthy(ctx, url) })
		if err != nil {
			return "", fmt.Errorf("no agent has connected: look at \"kubectl -n %s logs daemonset/%s\": %w", e.bundle.Namespace, konnectivity.AgentName, err)
		}
		return "", nil
	})
}

func (e *nodeEffects) waitAPIServer(ctx context.Context, p *kubelet.Program, others []kubelet.Instance) error {
	if err := e.waitFor(ctx, p, others); err != nil {
		return e.notReady(ctx, apiServer, apiServer, e.since, err)
	}
	return nil
}

// Unmade implements journal.Effects.
func (e *nodeEffects) Unmade(ctx context.Context, step Step) error {
	if step == StepAPIServer && e.journal.Wait.APIServer.Begun {
		return progress.Step(e.opts.Progress, "Putting back kube-apiserver's manifest", func() (string, error) {
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
		// If there was no server before, do not wait for one.
		if w.OldServer != nil && w.Server.Begun {
			return e.waitFor(ctx, w.OldServer, w.Server.During)
		}
	case StepAPIServer:
		if w.APIServer.Begun {
			return e.waitAPIServer(ctx, w.OldAPIServer, w.APIServer.During)
		}
	case StepKubeadm:
		if e.journal.KubeadmBegun {
			return e.undoKubeadm(ctx, e.journal.Kubeadm)
		}
	}
	return nil
}

// undoKubeadm restores kubeadm's stored configuration, unless another node depends
// on what a first installation has added.
func (e *nodeEffects) undoKubeadm(ctx context.Context, c *journal.KubeadmChange) error {
	if e.journal.Operation == OpInstall && (e.state == nil || e.state.Kubeadm == nil) {
		others, err := e.api().OtherTunnels(ctx)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			e.opts.Notef("ConfigMap %s keeps the tunnel's part, as %v have the tunnel", manifests.KubeadmConfigMap, others)
			return nil
		}
	}
	err := e.api().SetKubeadmConfig(ctx, c.After, c.Before)
	e.reached("ConfigMap put back")
	if errors.Is(err, journal.ErrEdited) {
		e.opts.Notef("%v: it is left as it is", err)
		return nil
	}
	return err
}

func (e *nodeEffects) poll(timeout time.Duration) kubelet.Poll {
	return kubelet.Poll{Timeout: timeout, Every: e.opts.poll, Progress: e.opts.Progress}
}

func (e *nodeEffects) waiter() kubelet.Waiter {
	timeout := e.opts.Timeout
	if e.back && e.opts.rollback > 0 {
		timeout = e.opts.rollback
	}
	return kubelet.Waiter{Poll: e.poll(timeout), Proc: e.proc(), Settle: e.opts.settle, Healthy: e.healthy}
}

// waitFor waits until the program of a manifest is ready, and others have exited.
func (e *nodeEffects) waitFor(ctx context.Context, p *kubelet.Program, others []kubelet.Instance) error {
	if e.opts.waits != nil {
		return e.opts.waits(ctx, p)
	}
	return e.waiter().Ready(ctx, p, others)
}

// waitGone waits until a program has exited.
func (e *nodeEffects) waitGone(ctx context.Context, p *kubelet.Program) error {
	if e.opts.waits != nil {
		return nil
	}
	return e.waiter().Gone(ctx, p)
}

// waitMirror waits until the API shows kube-apiserver with the flags of its manifest:
// "fairlead install" and "fairlead uninstall" read there whether the tunnel is in use.
// A missing mirror Pod is not an error.
func (e *nodeEffects) waitMirror(ctx context.Context) {
	_ = progress.Step(e.opts.Progress, "Waiting until the API shows the new kube-apiserver", func() (string, error) {
		err := e.mirror(apiServer).Wait(ctx, e.poll(e.opts.mirrorLimit), e.opts.mirrorPatience)
		if err != nil && ctx.Err() == nil {
			e.opts.Notef("%v: until the kubelet renews Pod %s/%s-%s, \"fairlead install\" and \"fairlead uninstall\" judge by the old one",
				err, metav1.NamespaceSystem, apiServer, e.ownName)
		}
		return "", nil
	})
}

// notReady adds the container's last log lines to the error of a wait.
func (e *nodeEffects) notReady(ctx context.Context, pod, container string, since time.Time, err error) error {
	text := fmt.Sprintf("%s did not get ready", pod)
	if reason := e.mirror(pod).Reason(context.WithoutCancel(ctx)); reason != "" {
		text += " (" + reason + ")"
	}
	lines := kubelet.LastLogLines(e.Host, e.namespaceOf(pod), pod, container, since, logLines)
	if len(lines) == 0 {
		return fmt.Errorf("%s: %w", text, err)
	}
	return fmt.Errorf("%s: %w\nlast lines of its log, %s:\n  %s", text, err, kubelet.PodLogs, strings.Join(lines, "\n  "))
}
