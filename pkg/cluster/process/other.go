// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// MarkEnv is the environment variable of a supervisor's processes, on Linux.
const MarkEnv = "FAIRLEAD_CLUSTER_DIR"

var errNeedsLinux = errors.New("a cluster of processes needs Linux")

type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (*spawner) start(*exec.Cmd) error { return errNeedsLinux }

func (*spawner) close() {}

func command(spec Spec, _ string) *exec.Cmd { return exec.Command(spec.Path, spec.Args...) }

func rssBytes(int) int64 { return 0 }

// FindMarked finds nothing: only Linux runs clusters.
func FindMarked(string) ([]int, error) { return nil, nil }

// KillMarked ends nothing: only Linux runs clusters.
func KillMarked(context.Context, string, time.Duration) (int, error) { return 0, nil }
