// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxCrashes is how many logs of containers that end again and again are read.
const maxCrashes = 8

// crashes read the last words of containers that end again and again: of one for each image and architecture, since they show whether the image is for
// the node. None is read where no agent could carry the call: each would be a failed dial in the API server's metrics, which checks count.
func (c *collector) crashes() []source {
	if c.noAgent() && (c.s.APIServers.Err != nil || c.s.UsesEgress()) {
		return nil
	}
	type kind struct{ image, arch string }
	alike := map[kind][]Program{}
	var kinds []kind
	for _, p := range c.s.Programs.Value {
		if p.Pod == nil || p.Hosted || p.Ready || p.Restarts == 0 {
			continue
		}
		k := kind{p.Image, c.s.Architecture(p.Node)}
		if len(alike[k]) == 0 {
			kinds = append(kinds, k)
		}
		alike[k] = append(alike[k], p)
	}
	var out []source
	for _, k := range kinds[:min(len(kinds), maxCrashes)] {
		out = append(out, func(ctx context.Context) { c.lastWords(ctx, alike[k]) })
	}
	return out
}

// lastWords are the last lines of the first of these containers. They count for the others, which run the same image on the same architecture.
func (c *collector) lastWords(ctx context.Context, alike []Program) {
	p, lines := alike[0], int64(5)
	text, err := c.client.CoreV1().Pods(p.Pod.Namespace).GetLogs(p.Pod.Name, &corev1.PodLogOptions{Container: p.Container.Name, Previous: true, TailLines: &lines}).DoRaw(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range alike {
		c.s.Crashes[p.Key()] = strings.TrimSpace(string(text))
	}
}

// Architecture is that of a node; "" if it is unknown.
func (s *Snapshot) Architecture(node string) string {
	for i := range s.Nodes.Value {
		if s.Nodes.Value[i].Name == node {
			return s.Nodes.Value[i].Status.NodeInfo.Architecture
		}
	}
	return ""
}
