// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// Uninstall removes what Install has added, in reverse order. It restores files
// that are as Install left them, byte for byte. If kube-apiserver's manifest has
// been edited since, it removes only Install's own lines. It leaves other files
// that were edited since, and names them in the result. It rolls back an
// interrupted installation. If an earlier installation was in place, that one
// stays, and Uninstall fails with [ErrStillInstalled].
//
// Uninstall fails with [ErrNotInstalled] if there is nothing to do.
func Uninstall(ctx context.Context, o Options) (Result, error) {
	n := newNode(o.defaulted())
	result, err := n.uninstall(ctx)
	if err == nil {
		result.EgressSelector = egressNow(n.Host, n.manifestPath)
	}
	return result, err
}

func (n *node) uninstall(ctx context.Context) (Result, error) {
	if err := n.checkNode(); err != nil {
		return Result{}, preflightError(err)
	}
	if !n.Exists(StateDir) {
		return Result{}, ErrNotInstalled
	}
	unlock, err := journal.Lock(n.Host)
	if err != nil {
		return Result{}, preflightError(err)
	}
	defer unlock()
	earlier, err := n.interrupted()
	if err != nil {
		return Result{}, preflightError(err)
	}
	if result, done, err := n.resume(ctx, OpUninstall, string(OpUninstall)); err != nil || done {
		return result, err
	}
	if n.state == nil {
		if earlier != nil {
			return Result{Changed: true, Resumed: true}, nil
		}
		return Result{}, ErrNotInstalled
	}
	if err := n.checkCluster(ctx); err != nil {
		return Result{}, preflightError(err)
	}
	if earlier.StaysInstalled(n.state) {
		return Result{Changed: true, Resumed: true}, ErrStillInstalled
	}
	j, left, err := n.planUninstall(ctx)
	if err != nil {
		return Result{}, preflightError(err)
	}
	result, err := n.run(ctx, j)
	if j.State.OnlyKubeadm() {
		left = append(left, kubeadmLeft)
	}
	result.Left = left
	return result, err
}

// planUninstall returns the journal of an uninstallation, and the files that it
// leaves.
func (n *node) planUninstall(ctx context.Context) (*journal.Journal, []string, error) {
	n.bundle = n.state.Bundle.Defaulted()
	n.connect()
	p := newPlanner(n, &journal.Journal{
		Operation: OpUninstall, Desired: string(OpUninstall), Started: n.opts.Now(), Cluster: n.clusterID(ctx),
		Steps: []Step{StepAPIServer, StepKubeadm, StepServer, StepEgress, StepPKI},
	}, nil)
	p.planServerProcess(nil)
	if err := n.checkReady(ctx); err != nil {
		// Do not refuse: removing the tunnel may be the fix.
		n.opts.Notef("%v", err)
		p.Journal.WasBroken = true
	} else {
		p.Fail(p.checkVisible(kubelet.ProgramOf(p.container)))
	}
	var left []string
	for _, f := range n.state.Files {
		if f.Path == n.manifestPath {
			continue
		}
		reason, err := p.TakeAway(p.stepOf(f.Path), f)
		p.Fail(err)
		if reason != "" {
			left = append(left, f.Path+": "+reason)
		}
	}
	left = append(left, p.notInstalled()...)
	if reason, err := p.undoKubeadm(ctx); err != nil || reason != "" {
		p.Fail(err)
		if reason != "" {
			left = append(left, "ConfigMap "+manifests.KubeadmConfigMap+": "+reason)
		}
	}
	p.Journal.RemoveDirs = slices.Clone(n.state.Dirs)
	slices.Reverse(p.Journal.RemoveDirs)
	pod, err := p.takeAwayManifest()
	if err != nil {
		p.Fail(err)
	} else {
		left = append(left, p.keepNeeded(pod)...)
	}
	return p.Journal, left, p.Err()
}

// stepOf returns the step that removes a file.
func (n *node) stepOf(p string) Step {
	switch p {
	case n.manifestPath:
		return StepAPIServer
	case manifests.ServerFile(n.bundle):
		return StepServer
	case n.bundle.ControlPlane.EgressSelectorFile:
		return StepEgress
	}
	return StepPKI
}

// takeAwayManifest restores kube-apiserver's manifest byte for byte. If the
// manifest has been edited since, it removes what was added. In both cases it also
// removes the flag and the mounts of files that the uninstallation removes. It
// returns the resulting Pod.
func (p *planner) takeAwayManifest() (*corev1.Pod, error) {
	now, mode, err := p.Present(p.manifestPath)
	if err != nil {
		return nil, err
	}
	data, err := p.manifestBefore(now)
	if err == nil {
		data, err = manifests.WithoutTunnel(data, p.bundle)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.manifestPath, err)
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.manifestPath, err)
	}
	before, after := kubelet.ProgramOf(p.container), kubelet.ProgramOf(pod.Spec.Containers[manifests.APIServerIndex(pod)])
	before.Health = "https://" + p.address + "/readyz"
	after.Health = before.Health
	p.Journal.Wait.OldAPIServer, p.Journal.Wait.NewAPIServer = before.Excluding(after), after.Excluding(before)
	c := Change{Step: StepAPIServer, Path: p.manifestPath, Mode: mode, Data: data, Old: now, New: nodefs.Fingerprint(data, mode)}
	if c.New != c.Old {
		p.Journal.Changes = append(p.Journal.Changes, c)
	}
	return pod, nil
}

// manifestBefore returns kube-apiserver's manifest without what Install added.
func (p *planner) manifestBefore(now string) ([]byte, error) {
	f := p.state.File(p.manifestPath)
	if f == nil {
		return p.manifest, nil
	}
	if now == f.Now {
		if data, err := p.Read(f.Backup); !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return manifests.Remove(p.manifest, p.state.Manifest)
}

// undoKubeadm plans to remove the tunnel from kubeadm's stored configuration, once
// no other kube-apiserver uses the tunnel.
func (p *planner) undoKubeadm(ctx context.Context) (reason string, err error) {
	k := p.state.Kubeadm
	if p.opts.LeaveKubeadmConfig {
		return "", nil
	}
	if k == nil {
		return p.api().TunnelOfOthers(ctx), nil
	}
	if p.Journal.WasBroken {
		p.Journal.KubeadmLater = k
		return "", nil
	}
	change, reason, err := p.api().RemoveTunnel(ctx, k)
	p.Journal.Kubeadm = change
	return reason, err
}

// kubeadmLeft is the warning if an uninstallation could not change kubeadm's
// stored configuration.
const kubeadmLeft = "ConfigMap " + manifests.KubeadmConfigMap + " still has the tunnel, so the next \"kubeadm upgrade\" would bring its flag back: " +
	"run \"fairlead controlplane uninstall\" again when kube-apiserver answers"
