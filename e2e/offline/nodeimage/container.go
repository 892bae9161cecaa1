// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// container is the container in which a stage is built. Its main process sleeps, and commands run in it. Once
// committed, it is the next stage.
type container struct {
	docker docker
	id     string
}

// inContainer makes a container of the stage below, lets change work in it, and keeps it as tag. Nothing is kept if that fails.
func (b *builder) inContainer(ctx context.Context, below, tag string, change func(container) error) error {
	out, err := b.docker.run(ctx, nil, "run", "--detach", "--network=none", "--label="+labelFor(b.workDir), "--name",
		fmt.Sprintf("fairlead-node-image-%d", os.Getpid()), "--security-opt=seccomp=unconfined", "--entrypoint=sleep", below, "infinity")
	if err != nil {
		return err
	}
	c := container{docker: b.docker, id: strings.TrimSpace(out)}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, _ = b.docker.run(cleanup, nil, "rm", "--force", "--volumes", c.id)
	}()
	if err := change(c); err != nil {
		return err
	}
	command, err := json.Marshal(nodeCommand) // the container's is another one
	if err != nil {
		return err
	}
	_, err = b.docker.run(ctx, nil, "commit", "--change", "ENTRYPOINT "+string(command), c.id, tag)
	return err
}

// sh runs a shell command in the container and returns its output.
func (c container) sh(ctx context.Context, script string) (string, error) {
	return c.docker.run(ctx, nil, "exec", c.id, "bash", "-o", "errexit", "-o", "pipefail", "-c", script)
}

// add puts files into the container.
func (c container) add(ctx context.Context, layer imagetar.Layer) error {
	return c.docker.feed(ctx, layer.WriteTar, "cp", "-", c.id+":/")
}

// withContainerd runs containerd while images are imported into its store.
func (c container) withContainerd(ctx context.Context, importImages func() error) error {
	if _, err := c.sh(ctx, "nohup containerd >/var/log/containerd.log 2>&1 & echo $! >/run/containerd.pid"); err != nil {
		return err
	}
	const answers = `for i in {1..300}; do [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1 && exit 0; sleep 0.1; done
tail -n 5 /var/log/containerd.log >&2; exit 1`
	if _, err := c.sh(ctx, answers); err != nil {
		return fmt.Errorf("containerd does not answer: %w", err)
	}
	if err := importImages(); err != nil {
		return err
	}
	_, err := c.sh(ctx, endContainerd("/run", "/var/log/containerd.log", containerdLimit))
	return err
}

// containerdLimit is how long containerd may take to end.
const containerdLimit = 30 * time.Second

// endContainerd is a script that ends containerd and removes what only matters while it runs. containerd must end by
// itself, because its database is committed with the container and must not be committed while it is written to. No
// process reaps it then, so it may stay as a zombie.
func endContainerd(run, log string, limit time.Duration) string {
	const pause = 50 * time.Millisecond
	return fmt.Sprintf(`pid=$(cat %[1]s/containerd.pid); kill "$pid"
for ((i = 0; i < %[3]d; i++)); do
  grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" || { rm -rf %[1]s/containerd* %[2]s; exit 0; }
  sleep %[4]g
done
{ echo "containerd has not ended within %[5]v"; tail -n 5 %[2]s; } >&2; exit 1`, run, log, limit/pause, pause.Seconds(), limit)
}

// importImage puts an image into containerd's store, under more names if there are any. It is unpacked when a pod
// first needs it, and pinned, so the kubelet does not garbage-collect it: without a registry it could not be pulled
// again.
func (c container) importImage(ctx context.Context, img *imagetar.Image, more ...string) error {
	const ctr = "ctr --namespace=k8s.io images "
	write := func(w io.Writer) error { _, err := img.WriteTo(w); return err }
	if err := c.docker.feed(ctx, write, "exec", "--interactive", c.id, "sh", "-c",
		ctr+"import --label=io.cri-containerd.pinned=pinned --all-platforms --no-unpack --digests -"); err != nil {
		return fmt.Errorf("importing %s: %w", img.ShortName(), err)
	}
	for _, name := range more {
		if _, err := c.sh(ctx, fmt.Sprintf(ctr+"tag --force %s %s && "+ctr+"label %s io.cri-containerd.pinned=pinned >/dev/null", img.Name(), name, name)); err != nil {
			return err
		}
	}
	return nil
}
