// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// planServerRestart plans a restart of a server whose manifest stays as it is, if the
// installation changes files that the running server does not read again.
func (p *planner) planServerRestart(ctx context.Context) {
	ofServer := func(c Change) bool { return c.Step == StepServer }
	newFile := func(c Change) bool { return c.Step == StepPKI && newContent(c) }
	if slices.ContainsFunc(p.Journal.Changes, ofServer) || !slices.ContainsFunc(p.Journal.Changes, newFile) {
		return
	}
	name := manifests.ServerFile(p.bundle)
	data, err := p.Read(name)
	if err != nil || p.state.File(name) == nil {
		if err == nil || p.state != nil {
			p.opts.Notef("fairlead has not installed a static Konnectivity server on this node: restart the server if one runs, unless it reads new files by itself")
		}
		return
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", name, err))
		return
	}
	if !reloads(pod.Spec.Containers) || !p.kubeconfigReloads() {
		p.Fail(p.annotateServer(ctx, name, data))
	}
}

// planOldServer plans to remove the server's manifest of an earlier installation, if the
// bundle has none: its server would keep the ports from the one in another form.
func (p *planner) planOldServer(files []bundle.File) {
	if p.state == nil {
		return
	}
	name := manifests.ServerFile(p.state.Bundle.Defaulted())
	known := p.state.File(name)
	if known == nil || slices.ContainsFunc(files, func(f bundle.File) bool { return path.Base(f.Path) == path.Base(name) }) {
		return
	}
	reason, err := p.TakeAway(StepServer, *known)
	p.Fail(err)
	if reason != "" {
		p.opts.Notef("%s: %s", name, reason)
	}
	p.After.Files = slices.DeleteFunc(p.After.Files, func(f InstalledFile) bool { return f.Path == name })
}

// kubeconfigReloads reports whether this project's server reads the planned kubeconfig while
// it runs. If the old file is gone, the server still has that mounted.
func (p *planner) kubeconfigReloads() bool {
	name := p.bundle.Konnectivity.Server.Kubeconfig
	i := slices.IndexFunc(p.Journal.Changes, func(c Change) bool { return c.Path == name && newContent(c) })
	if i < 0 {
		return true
	}
	before, err := p.Read(name)
	return err == nil && certs.OnlyRenewed(before, p.Journal.Changes[i].Data)
}

// newContent reports whether a change is of more than the mode.
func newContent(c Change) bool {
	before, _, _ := strings.Cut(c.Old, "-")
	after, _, _ := strings.Cut(c.New, "-")
	return before == nodefs.Absent || before != after
}

// sameServer accepts a server's manifest with the same content, whatever its formatting,
// also after a restart.
func sameServer(want []byte) func([]byte) error {
	return func(data []byte) error {
		var tree map[string]any
		if err := sigsyaml.Unmarshal(data, &tree); err != nil {
			return err
		}
		metadata, _ := tree["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if delete(annotations, restartedAt); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		plain, err := sigsyaml.Marshal(tree)
		if err != nil {
			return err
		}
		return sameYAML(want)(plain)
	}
}
