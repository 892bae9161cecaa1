// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// nodeImageVariable names another node image than the one of make node-image.
const nodeImageVariable = "E2E_NODE_IMAGE"

// runtimeVariable chooses the container runtime, for fairlead and kind alike.
const runtimeVariable = "KIND_EXPERIMENTAL_PROVIDER"

// NodeImage is the image of kind's nodes.
func NodeImage() string {
	if image := os.Getenv(nodeImageVariable); image != "" {
		return image
	}
	return nodeimage.Name()
}

// Container is what the container runtime knows of a container.
type Container struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Running   bool
		StartedAt string
	}
	Mounts []struct{ Type, Name, Source string }
}

// runtimeName is that of the container runtime, as fairlead chooses it; "" if there is none.
func runtimeName() string {
	name := os.Getenv(runtimeVariable)
	for _, known := range []string{"docker", "nerdctl", "finch", "podman"} {
		if _, err := exec.LookPath(known); err == nil && name == "" {
			name = known
		}
	}
	return name
}

// Runtime runs a command of the container runtime, the one that kind uses, and
// returns what it printed.
func Runtime(ctx context.Context, args ...string) (string, error) {
	name := runtimeName()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// Containers looks at all containers of a cluster that fairlead has made, by
// name, at those that do not run, too. They may be going away meanwhile.
func Containers(ctx context.Context, cluster string) ([]Container, error) {
	ids, err := Runtime(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=io.x-k8s.kind.cluster="+contextOf(cluster))
	if err != nil {
		return nil, err
	}
	return Inspect(ctx, strings.Fields(ids)...)
}

// Inspect looks at containers by name or id.
func Inspect(ctx context.Context, which ...string) ([]Container, error) {
	if len(which) == 0 {
		return nil, nil
	}
	out, err := Runtime(ctx, append([]string{"inspect", "--type=container"}, which...)...)
	if err != nil {
		return nil, err
	}
	var list []Container
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Name = strings.TrimPrefix(list[i].Name, "/") // as Docker has it
	}
	slices.SortFunc(list, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Volumes are the names of the volumes that containers have of their own.
func Volumes(list []Container) []string {
	var names []string
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" {
				names = append(names, m.Name)
			}
		}
	}
	return names
}
