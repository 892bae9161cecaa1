// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"
)

// createNodes runs kind.
func (p *plan) createNodes(ctx context.Context, library *kindcluster.Provider, retain bool) error {
	config, err := os.ReadFile(p.kindConfigFile())
	if err != nil {
		return err
	}
	return CreateNodes(ctx, library, kindName(p.Name), kindKubeconfig(p.Home), retain,
		kindcluster.CreateWithRawConfig(config),
		kindcluster.CreateWithRetain(true), // CollectLogs needs the nodes' logs
		kindcluster.CreateWithDisplayUsage(false), kindcluster.CreateWithDisplaySalutation(false))
}

// CreateNodes lets kind create a cluster, and adds its context to kubeconfig. kind's
// library takes no context, but fails at once if its containers are gone. So when ctx
// ends, CreateNodes removes the containers until kind has failed, and kind does not
// continue in the background. With retain the containers stay, and kind continues
// until the process ends.
func CreateNodes(ctx context.Context, library *kindcluster.Provider, name, kubeconfig string, retain bool, options ...kindcluster.CreateOption) error {
	done := make(chan error, 1)
	go func() {
		done <- library.Create(name, append(options, kindcluster.CreateWithKubeconfigPath(kubeconfig))...)
	}()
	for {
		select {
		case err := <-done:
			return explain(err)
		case <-ctx.Done():
		}
		if retain {
			return context.Cause(ctx)
		}
		_ = deleteNodes(ctx, library, name, kubeconfig) // the caller retries, and reports the error
		select {
		case err := <-done:
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(time.Second):
		}
	}
}

// explain adds the output of a failed command to kind's error, which lacks it.
func explain(err error) error {
	failed := kindexec.RunErrorForError(err)
	if failed == nil || len(failed.Output) == 0 {
		return err
	}
	lines := withoutStacks(strings.Split(strings.TrimSpace(string(failed.Output)), "\n"))
	lines = lines[max(0, len(lines)-quotedLines):]
	return fmt.Errorf("%w; the end of its output:\n    %s", err, strings.Join(lines, "\n    "))
}

// withoutStacks removes Go's stack traces, which kubeadm prints below its errors: one
// line for a function, and one for its position.
func withoutStacks(lines []string) []string {
	place := func(i int) bool {
		return i < len(lines) && strings.HasPrefix(lines[i], "\t") && (strings.Contains(lines[i], ".go:") || strings.Contains(lines[i], ".s:"))
	}
	var kept []string
	for i, line := range lines {
		if !place(i) && !place(i+1) {
			kept = append(kept, line)
		}
	}
	return kept
}

// quotedLines are enough to show why kubeadm failed.
const quotedLines = 12
