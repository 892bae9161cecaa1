// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster/kind"
)

// Bounds of a kind cluster, and its size.
const (
	boundKind  = 90 * time.Second
	boundRatio = 1.5

	controlPlanes, workers = 1, 2
)

// runKind creates clusters in turn: one with fairlead, fully verified, and one
// with kind alone.
func runKind(ctx context.Context, runs int, image string) error {
	if runs < 1 {
		return errors.New("-runs: at least 1 is needed")
	}
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &kindBench{image: image, config: filepath.Join(dir, "kind.yaml"), env: append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))}
	var ours, plain []time.Duration
	for i := range runs + 1 { // the first is not counted: files come from the disk
		took, err := b.ours(ctx)
		if err != nil {
			return err
		}
		tookPlain, err := b.plain(ctx)
		if err != nil {
			return err
		}
		if i > 0 {
			ours, plain = append(ours, took), append(plain, tookPlain)
		}
	}
	ratio := median(ours).Seconds() / median(plain).Seconds()
	fmt.Printf("%d CPUs, %d control plane node, %d workers, image %s\n", runtime.NumCPU(), controlPlanes, workers, b.image)
	fmt.Printf("fairlead up, quick checks included: median %.1f s of %v (at most %.0f s)\n", median(ours).Seconds(), seconds(ours), boundKind.Seconds())
	fmt.Printf("kind create cluster:                median %.1f s of %v\n", median(plain).Seconds(), seconds(plain))
	fmt.Printf("ratio %.2f (at most %.1f)\n", ratio, boundRatio)
	if median(ours) > boundKind || ratio > boundRatio {
		return errors.New("that is longer than it may take")
	}
	return nil
}

// kindBench has the common state of both ways.
type kindBench struct {
	image, config string
	env           []string
}

// ours brings a cluster up and takes it down.
func (b *kindBench) ours(ctx context.Context) (time.Duration, error) {
	program := filepath.Join("bin", "fairlead")
	args := []string{"up", "--provider", "kind", "--name", name, "--control-planes", fmt.Sprint(controlPlanes), "--workers", fmt.Sprint(workers)}
	if b.image != "" {
		args = append(args, "--image", b.image)
	}
	start := time.Now()
	_, upErr := command(ctx, ".", b.env, program, args...)
	took := time.Since(start)
	var statusErr error
	if upErr == nil {
		statusErr = b.learn(ctx, program)
	}
	_, downErr := command(context.WithoutCancel(ctx), ".", b.env, program, "down", "--name", name)
	return took, errors.Join(upErr, statusErr, downErr)
}

// learn finds out which image was used, and writes kind's configuration for it.
func (b *kindBench) learn(ctx context.Context, program string) error {
	out, err := command(ctx, ".", b.env, program, "status", "--name", name, "--wait", "1m", "-o", "json")
	if err != nil {
		return err
	}
	var status struct{ Components struct{ Image string } }
	if err := json.Unmarshal(out, &status); err != nil {
		return fmt.Errorf("fairlead status: %w", err)
	}
	if b.image == status.Components.Image && exists(b.config) {
		return nil
	}
	b.image = status.Components.Image
	data, err := kind.PlainConfig(ctx, b.image, controlPlanes, workers)
	if err != nil {
		return err
	}
	return os.WriteFile(b.config, data, 0o600)
}

// plain lets kind make a cluster from the same image and delete it.
func (b *kindBench) plain(ctx context.Context) (time.Duration, error) {
	program := filepath.Join("_output", "kind")
	start := time.Now()
	_, createErr := command(ctx, ".", b.env, program, "create", "cluster", "--name", name+"-plain", "--config", b.config)
	took := time.Since(start)
	_, deleteErr := command(context.WithoutCancel(ctx), ".", b.env, program, "delete", "cluster", "--name", name+"-plain")
	return took, errors.Join(createErr, deleteErr)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
