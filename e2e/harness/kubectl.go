// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/components/unpack"
)

// BuildKubectl compiles the pinned kubectl, once for a cluster; its packages are
// compiled already.
func (c *Cluster) BuildKubectl(ctx context.Context) (string, error) {
	dir := filepath.Join(c.Dir, "kubectl-build")
	path := filepath.Join(dir, "kubectl")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, buildKubectl(ctx, dir, path)
}

func buildKubectl(ctx context.Context, dir, out string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unpack.Into(dir); err != nil {
		return err
	}
	c, err := components.Get("kubectl")
	if err != nil {
		return err
	}
	args := append([]string{"build"}, components.Flags()...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-ldflags", c.LDFlags, "-o", out, c.Package)...)
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), components.Environ()...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building kubectl: %w\n%s", err, text)
	}
	return nil
}

// Kubectl runs a kubectl against the user's current context.
func (c *Cluster) Kubectl(ctx context.Context, path, stdin string, args ...string) (string, error) {
	cmd, stdout, stderr := c.Program(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %v: %w\n%s%s", args, err, stdout, stderr)
	}
	return stdout.String(), nil
}
