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
		kindcluster.CreateWithRetain(true), // abandon needs the nodes' logs
		kindcluster.CreateWithDisplayUsage(false), kindcluster.CreateWithDisplaySalutation(false))
}

// CreateNodes lets kind create a cluster, whose context goes into kubeconfig. kind
// takes no context, but fails at once without its containers: when ctx ends, they
// are removed until kind has given up, so that it goes on with nothing behind the
// caller's back. With retain they stay, and kind goes on until the process ends.
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
		_ = deleteNodes(ctx, library, name, kubeconfig) // the caller tries again, and tells
		select {
		case err := <-done:
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(time.Second):
		}
	}
}

// explain adds what a failed command said to kind's error, which does not.
func explain(err error) error {
	failed := kindexec.RunErrorForError(err)
	if failed == nil || len(failed.Output) == 0 {
		return err
	}
	lines := withoutStacks(strings.Split(strings.TrimSpace(string(failed.Output)), "\n"))
	lines = lines[max(0, len(lines)-quotedLines):]
	return fmt.Errorf("%w; the end of what it said:\n    %s", err, strings.Join(lines, "\n    "))
}

// withoutStacks leaves out Go's stack traces, which kubeadm prints below its errors: a
// line for a function, and one for its place.
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

// quotedLines are enough to see why kubeadm gave up.
const quotedLines = 12
