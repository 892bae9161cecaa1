// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// restartedAt is the annotation that restartServer changes on the server's
// static Pod, so that the kubelet recreates the Pod.
const restartedAt = "fairlead.dev/restarted-at"

// restartServer plans a restart of the server, if it needs one.
func (p *planner) restartServer(ctx context.Context, mode string, r *Renewal) error {
	name := manifests.ServerFile(p.bundle)
	data, err := p.Read(name)
	if err != nil {
		r.Notes = append(r.Notes, "there is no static Konnectivity server on this node: restart the server if it does not read renewed files by itself")
		return nil //nolint:nilerr // the note reports it
	}
	pod, err := manifests.Decode(data)
	if err == nil && len(pod.Spec.Containers) == 0 {
		err = errors.New("it has no containers")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.planServerProcess(data)
	if mode == "never" || mode != "always" && reloads(pod.Spec.Containers) {
		return nil
	}
	r.Restarted = true
	return p.annotateServer(ctx, name, data)
}

// annotateServer plans the change of the annotation.
func (p *planner) annotateServer(ctx context.Context, name string, data []byte) error {
	if old := p.Journal.Wait.OldServer; old != nil && p.healthy(ctx, old.Health) == nil {
		if err := p.checkVisible(old); err != nil {
			return err
		}
	}
	changed, err := manifests.Annotate(data, restartedAt, p.opts.Now().UTC().Format(time.RFC3339))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.Replace(StepServer, name, changed, false)
	return nil
}

// reloads reports whether the server's image is this project's, judged by its
// name, in whatever registry. Upstream's proxy-server reads its files only once.
func reloads(containers []corev1.Container) bool {
	for _, c := range containers {
		image, _, _ := strings.Cut(path.Base(c.Image), "@")
		image, _, _ = strings.Cut(image, ":")
		if image == konnectivity.ServerBinary {
			return true
		}
	}
	return false
}
