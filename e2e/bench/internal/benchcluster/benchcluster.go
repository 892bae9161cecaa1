// SPDX-License-Identifier: Apache-2.0

// Package benchcluster starts the embedded clusters that benchmarks measure, apart from those of the user. Begin with [Start].
package benchcluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Start makes an embedded cluster with one node and one agent by the program fairlead. It does not verify the cluster. spec is the spec
// of the Bundle, in YAML on one line; empty means the default bundle. The kubeconfig is a new file in dir. Call down in any case, also
// after an error: it removes the cluster, even if ctx has ended.
func Start(ctx context.Context, fairlead, dir, name, spec string, flags ...string) (kubeconfig string, down func() error, err error) {
	kubeconfig = filepath.Join(dir, "kubeconfig")
	call := func(ctx context.Context, args ...string) error {
		return run(ctx, fairlead, append(args, "--name", name, "--kubeconfig", kubeconfig)...)
	}
	down = func() error { return call(context.WithoutCancel(ctx), "down") }
	args := append([]string{"up", "--nodes", "1", "--agents", "1", "--no-verify"}, flags...)
	if spec != "" {
		bundle := filepath.Join(dir, "bundle.yaml")
		text := "apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {name: default}\nspec: " + spec + "\n"
		if err := os.WriteFile(bundle, []byte(text), 0o600); err != nil {
			return kubeconfig, down, err
		}
		args = append(args, "--filename", bundle)
	}
	return kubeconfig, down, call(ctx, args...)
}

// run runs a program. The error has its output.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // let it clean up
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, args, err, &output)
	}
	return nil
}

// FreePort returns a TCP port of the loopback address that was free a moment ago, or 0.
func FreePort(ctx context.Context) int {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one of TCP
}
