// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/offline/debian"
)

// docker runs the docker command, which knows the user's contexts and DOCKER_HOST.
type docker struct{}

var errDocker = errors.New("docker is needed to build the node image")

// check fails early and clearly if there is no Docker.
func (d docker) check(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return fmt.Errorf("%w and is not installed: `eval \"$(go -C e2e/offline run ./dockerd start)\"` installs and starts one on Debian", errDocker)
	}
	if out, err := d.run(ctx, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		return fmt.Errorf("%w and no daemon answers: `eval \"$(go -C e2e/offline run ./dockerd start)\"` starts one: %w %s", errDocker, err, out)
	}
	return nil
}

// run returns the standard output.
func (d docker) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		said := debian.LastLines(stderr.String()+stdout.String(), 10)
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, said)
	}
	return stdout.String(), nil
}

// feed runs docker with what write writes as its standard input.
func (d docker) feed(ctx context.Context, write func(io.Writer) error, args ...string) error {
	reader, writer := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		err := write(writer)
		_ = writer.CloseWithError(err)
		failed <- err
	}()
	_, err := d.run(ctx, reader, args...)
	_ = reader.CloseWithError(errors.New("docker has ended"))
	if writeErr := <-failed; err == nil && writeErr != nil {
		err = writeErr
	}
	return err
}

func (d docker) has(ctx context.Context, image string) bool {
	_, err := d.id(ctx, image)
	return err == nil
}

func (d docker) id(ctx context.Context, image string) (string, error) {
	out, err := d.run(ctx, nil, "image", "inspect", "--format", "{{.Id}}", image)
	return strings.TrimSpace(out), err
}

// builderLabel marks the containers in which stages are built.
const builderLabel = "fairlead.dev/nodeimage-builder"

// labelFor marks the containers of builders that use this directory. Builders with another directory, and so another
// lock, may use the same daemon.
func labelFor(workDir string) string {
	sum := sha256.Sum256([]byte(workDir))
	return builderLabel + "=" + hex.EncodeToString(sum[:8])
}

// removeBuilders removes the containers that a killed builder with this directory has left. Its lock is held.
func (d docker) removeBuilders(ctx context.Context, workDir string) {
	ids, err := d.run(ctx, nil, "ps", "--all", "--quiet", "--filter", "label="+labelFor(workDir))
	if err != nil || strings.TrimSpace(ids) == "" {
		return
	}
	_, _ = d.run(ctx, nil, append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)...)
}
