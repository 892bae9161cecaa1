// SPDX-License-Identifier: Apache-2.0

package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	semver "k8s.io/apimachinery/pkg/util/version"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
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
	// Unknown says what could not be read, so that there may be more in Images and Skew.
	Unknown []string `json:"unknown,omitempty"`
	// Error says why nothing is known.
	Error string `json:"error,omitempty"`
}

type skew struct {
	// Check is the ID of the check of "fairlead check" that finds it; absent if only this program differs.
	Check   string `json:"check,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// Limit bounds each read of the cluster. It is short, because a version must not wait for a cluster that is gone.
var Limit = 3 * time.Second

// oneRelease is the check that server and agents are of one release.
const oneRelease = "FL-KON-032"

// versionChecks compare versions.
var versionChecks = []string{"FL-API-003", oneRelease, "FL-SCH-015"}

// look returns nil if no cluster is chosen, and fails if the chosen one cannot be found.
func (o *options) look(ctx context.Context) (*inCluster, error) {
	found, err := o.cluster.Load()
	var none *clusterflags.NoContextError
	switch chosen := *o.cluster.Context != ""; {
	case !chosen && (errors.Is(err, fs.ErrNotExist) || errors.As(err, &none) && none.Name == ""):
		return nil, nil //nolint:nilnil // no cluster
	case err != nil:
		return nil, err
	}
	out := &inCluster{Context: found.Context, Server: found.Config.Host, Skew: []skew{}}
	s, err := observe.Collect(ctx, observe.Target{Config: found.Config, Context: found.Context, Brief: true, Limit: Limit})
	if err == nil {
		err = s.Reach.Err
	}
	if err != nil {
		out.Error = err.Error()
		return out, nil //nolint:nilerr // Error has it: the cluster does not answer
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
	for _, fact := range []struct {
		what string
		err  error
	}{{"the API server's version", s.Version.Err}, {"nodes", s.Nodes.Err}, {"programs", s.Programs.Err}} {
		if fact.err != nil {
			out.Unknown = append(out.Unknown, fact.what+": "+fact.err.Error())
		}
	}
	out.compare(s)
	return out, nil
}

// compare judges the versions in the cluster among themselves, and with this program's.
func (c *inCluster) compare(s *observe.Snapshot) {
	tunnel := len(observe.Of(s.Programs.Value, check.RoleServer))+len(observe.Of(s.Programs.Value, check.RoleAgent)) > 0
	for _, r := range rules.Judge(s, rules.Options{Only: versionChecks}).Checks {
		if !slices.Contains(versionChecks, r.ID) { // it keeps one of them from being made
			continue
		}
		for _, f := range r.Findings {
			c.Skew = append(c.Skew, skew{r.ID, strings.TrimPrefix(f.Object+": "+f.Message, ": "), f.Fix})
		}
		// A check of a tunnel that is there is skipped if one end is not visible.
		dark := r.Status == rules.Unknown || r.Status == rules.Skipped && r.ID == oneRelease && tunnel
		if dark && !slices.ContainsFunc(c.Unknown, func(u string) bool { return strings.HasSuffix(u, r.Reason) }) {
			c.Unknown = append(c.Unknown, fmt.Sprintf("whether these fit together: %s (%s): %s", r.Title, r.ID, r.Reason))
		}
	}
	own := semver.MustParseSemantic(v1alpha1.ImageTag)
	for _, role := range slices.Sorted(maps.Keys(c.Images)) {
		for _, image := range c.Images[role] {
			if !v1alpha1.IsFairlead(image) {
				continue
			}
			switch other, err := semver.ParseSemantic(observe.ImageTag(image)); {
			case err != nil:
				c.Unknown = append(c.Unknown, fmt.Sprintf("the release of %s: image %s has no version in its tag", role, image))
			case other.LessThan(own):
				c.Skew = append(c.Skew, skew{Message: fmt.Sprintf("%s is of release v%s, this program of v%s", role, other, own),
					Fix: "fairlead install -f bundle.yaml; fairlead controlplane install -f bundle.yaml   # upgrades the cluster"})
			case own.LessThan(other):
				c.Skew = append(c.Skew, skew{Message: fmt.Sprintf("%s is of release v%s, this program of v%s", role, other, own),
					Fix: fmt.Sprintf("install fairlead v%s on this machine", other)})
			}
		}
	}
}

func (c *inCluster) write(out io.Writer) error {
	if c.Error != "" {
		_, err := fmt.Fprintf(out, "Cluster %s: %s\n", c.Context, c.Error)
		return err
	}
	_, err := fmt.Fprintf(out, "Cluster %s: Kubernetes %s\n", c.Context, cmp.Or(c.Kubernetes, "unknown"))
	for _, role := range slices.Sorted(maps.Keys(c.Images)) {
		_, _ = fmt.Fprintf(out, "  %s: %s\n", role, strings.Join(c.Images[role], ", "))
	}
	for _, s := range c.Skew {
		id := ""
		if s.Check != "" {
			id = " (" + s.Check + ")"
		}
		_, _ = fmt.Fprintf(out, "  ! %s%s\n    fix: %s\n", s.Message, id, s.Fix)
	}
	for _, u := range c.Unknown {
		_, _ = fmt.Fprintf(out, "  ? %s\n", u)
	}
	return err
}
