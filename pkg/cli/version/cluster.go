// SPDX-License-Identifier: Apache-2.0

package version

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// inCluster is what runs in a cluster.
type inCluster struct {
	Context string `json:"context,omitempty"`
	Server  string `json:"server"`
	// Kubernetes is the API server's version.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Images are those of the tunnel's programs and schedulers, by role.
	Images map[string][]string `json:"images,omitempty"`
	// Skew are versions that do not fit together.
	Skew []skew `json:"skew"`
	// Error says why nothing is known.
	Error string `json:"error,omitempty"`
}

type skew struct {
	// Check is the ID of the check of "fairlead check" that finds it.
	Check   string `json:"check"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// limit is short, because a version must not wait for a cluster that is gone.
const limit = 3 * time.Second

// versionChecks compare versions.
var versionChecks = []string{"FL-API-003", "FL-KON-032", "FL-SCH-015"}

// look returns nil without a context.
func (o *options) look(ctx context.Context) *inCluster {
	found, err := o.cluster.Load()
	if err != nil {
		return nil
	}
	out := &inCluster{Context: found.Context, Server: found.Config.Host, Skew: []skew{}}
	s, err := observe.Collect(ctx, observe.Target{Config: found.Config, Context: found.Context, Brief: true, Limit: limit})
	if err == nil {
		err = s.Reach.Err
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	if s.Version.Value != nil {
		out.Kubernetes = s.Version.Value.GitVersion
	}
	for _, p := range s.Programs.Value {
		if p.Image == "" || slices.Contains(out.Images[string(p.Role)], p.Image) {
			continue
		}
		if out.Images == nil {
			out.Images = map[string][]string{}
		}
		out.Images[string(p.Role)] = append(out.Images[string(p.Role)], p.Image)
	}
	for _, r := range rules.Judge(s, rules.Options{Only: versionChecks}).Checks {
		for _, f := range r.Findings {
			out.Skew = append(out.Skew, skew{r.ID, strings.TrimPrefix(f.Object+": "+f.Message, ": "), f.Fix})
		}
	}
	return out
}

func (c *inCluster) write(out io.Writer) error {
	if c.Error != "" {
		_, err := fmt.Fprintf(out, "Cluster %s: %s\n", c.Context, c.Error)
		return err
	}
	_, err := fmt.Fprintf(out, "Cluster %s: Kubernetes %s\n", c.Context, c.Kubernetes)
	for _, role := range slices.Sorted(maps.Keys(c.Images)) {
		_, _ = fmt.Fprintf(out, "  %s: %s\n", role, strings.Join(c.Images[role], ", "))
	}
	for _, s := range c.Skew {
		_, _ = fmt.Fprintf(out, "  ! %s (%s)\n    fix: %s\n", s.Message, s.Check, s.Fix)
	}
	return err
}
