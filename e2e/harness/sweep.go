// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const homePrefix = "fl-"

// HomePrefix begins the names of this process's home directories, so a later
// run can recognize what a killed one left behind.
func HomePrefix() string { return homePrefix + owner() + "-" }

// ClusterName is a name for a cluster that no other run of tests has: container
// names are one for the whole machine.
func ClusterName(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

// SweepUp removes the clusters of test runs that were killed.
func SweepUp(ctx context.Context) {
	if err := sweepPlain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	homes, _ := filepath.Glob(filepath.Join(os.TempDir(), homePrefix+"*-*"))
	for _, dir := range homes {
		if !ownerGone(strings.TrimPrefix(filepath.Base(dir), homePrefix)) {
			continue
		}
		bin, done, err := BuildPrograms(ctx)
		if err != nil {
			return
		}
		fmt.Fprintf(os.Stderr, "removing what a killed run left in %s\n", dir)
		if err := removeHome(ctx, bin, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		done()
	}
}

func removeHome(ctx context.Context, bin, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	h, err := homeAt(bin, dir)
	if err != nil {
		return err
	}
	for _, c := range h.Clusters() {
		if _, err := h.Must(ctx, "down", "--name", c); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
