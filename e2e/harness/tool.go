// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// Image is the name of the image that holds testpod alone.
const Image = "fairlead.dev/e2e/testpod:e2e"

// podTool is testpod in the image; it is /bin/tar there too, for kubectl cp.
const podTool = "/testpod"

// tickEvery is how often the server's Pod writes a line into its log.
const tickEvery = 200 * time.Millisecond

// prepareTool builds testpod and makes it available to Pods.
func (c *Cluster) prepareTool(ctx context.Context) error {
	path := filepath.Join(c.Dir, "testpod")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, "github.com/fairlead-dev/fairlead/e2e/testpod")
	build.Env = append(c.Env, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building testpod: %w\n%s", err, out)
	}
	if c.Simulated() {
		c.tool = path
		c.startTicking(context.WithoutCancel(ctx))
		return nil
	}
	c.tool = podTool
	return c.loadTool(path)
}

// startTicking simulates the Pod that writes into its log all the time.
func (c *Cluster) startTicking(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(tickEvery)
		defer ticker.Stop()
		for i := 0; ; i++ {
			_ = c.appendLog(fmt.Appendf(nil, "%s stdout F tick %d\n", time.Now().UTC().Format(time.RFC3339Nano), i))
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	c.closers = append(c.closers, func() { cancel(); <-done })
}

// Close ends what runs on this machine for the cluster.
func (c *Cluster) Close() {
	for _, f := range c.closers {
		f()
	}
	c.closers = nil
}
