// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// disk is a small file system, mounted at dir, that contains a node.
type disk struct {
	t         *testing.T
	dir, node string
}

const diskSize = "size=1m"

func newDisk(t *testing.T) disk {
	t.Helper()
	dir := t.TempDir()
	d := disk{t, dir, filepath.Join(dir, "node")}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, diskSize); err != nil {
		if os.Geteuid() != 0 {
			t.Skip("only root can mount a file system of a size")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(d.node, 0o755); err != nil {
		t.Fatal(err)
	}
	copyTree(t, testNode(t), d.node)
	return d
}

func (d disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves this many blocks free.
func (d disk) fill(blocks int64) {
	d.t.Helper()
	file, err := os.Create(d.filler())
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	size := int64(0)
	for block := make([]byte, 4096); ; {
		n, err := file.Write(block)
		size += int64(n)
		if err != nil {
			break
		}
	}
	if err := file.Truncate(max(0, size-blocks*4096)); err != nil {
		d.t.Fatal(err)
	}
}

func (d disk) empty() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

func (d disk) readOnly(yes bool) {
	d.t.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if yes {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("tmpfs", d.dir, "", flags, diskSize); err != nil {
		d.t.Fatal(err)
	}
}

// TestFullAndReadOnlyDisk checks that every command detects a full disk before the
// first change and leaves nothing behind, and that the error names a read-only disk.
func TestFullAndReadOnlyDisk(t *testing.T) {
	for name, run := range map[string]func(context.Context, Options) error{
		"install": func(ctx context.Context, o Options) error { _, err := Install(ctx, o); return err },
		"renew":   func(ctx context.Context, o Options) error { _, err := Renew(ctx, RenewOptions{Options: o}); return err },
		"uninstall": func(ctx context.Context, o Options) error {
			_, err := Uninstall(ctx, o)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			if name != "install" {
				install(t, d.node)
			}
			for _, blocks := range []int64{0, 1, 2, 3} {
				d.fill(blocks)
				before := snapshot(t, d.node)
				err := run(t.Context(), testOptions(d.node))
				if errors.Is(err, syscall.ENOSPC) {
					if !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "free some space") {
						t.Errorf("room for %d: %v", blocks, err)
					}
					sameTrees(t, before, snapshot(t, d.node))
				} else if err != nil || blocks == 0 {
					t.Errorf("room for %d: %v", blocks, err)
				}
				d.empty()
			}
			before := snapshot(t, d.node)
			d.readOnly(true)
			err := run(t.Context(), testOptions(d.node))
			if !errors.Is(err, ErrPreflight) || !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "mount it writable") {
				t.Errorf("read-only: %v", err)
			}
			sameTrees(t, before, snapshot(t, d.node))
			d.readOnly(false)
			if err := run(t.Context(), testOptions(d.node)); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// TestDiskFullAtTheEnd fills the disk when everything is in place and only the end of
// the run has to be recorded. The installation stays, and the same command completes
// it.
func TestDiskFullAtTheEnd(t *testing.T) {
	d := newDisk(t)
	o := testOptions(d.node)
	o.after = func(point string) {
		if point == "step "+string(StepKubeadm) {
			d.fill(0)
		}
	}
	_, err := Install(t.Context(), o)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "everything is in place") || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("%v", err)
	}
	for _, f := range []string{serverFile, v1alpha1.DefaultServerKubeconfig, v1alpha1Egress} {
		if !(nodefs.Host{Root: d.node}).Exists(f) {
			t.Errorf("%s is gone", f)
		}
	}
	starts(t, nodefs.Host{Root: d.node})
	d.empty()
	install(t, d.node)
	if (nodefs.Host{Root: d.node}).Exists(journal.File) {
		t.Error("the journal is still there")
	}
	uninstall(t, d.node)
	sameTrees(t, snapshot(t, pristine), snapshot(t, d.node))
}
