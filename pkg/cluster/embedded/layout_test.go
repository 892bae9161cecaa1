// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

func TestLayoutRefusesNames(t *testing.T) {
	for _, name := range []string{"", "Dev", "a/b", "..", "a b", "-a", strings.Repeat("a", 41)} {
		if _, err := NewLayout(t.TempDir(), name); err == nil || !strings.Contains(err.Error(), "cluster name") {
			t.Errorf("NewLayout(%q) = %v, want an error about the name", name, err)
		}
	}
	if _, err := NewLayout(t.TempDir(), strings.Repeat("a", 40)); err != nil {
		t.Errorf("40 characters: %v", err)
	}
}

// Sockets move to the runtime directory when the state directory is too deep,
// and no place at all is an error (a socket path has 107 bytes at most).
func TestSocketsFindAShortPlace(t *testing.T) {
	runtimeDir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	short, err := NewLayout("/s", "dev")
	if err != nil || short.TunnelSocket() != "/s/dev/run/konnectivity-server.socket" {
		t.Errorf("short state directory: %q, %v", short.TunnelSocket(), err)
	}
	deepRoot := "/" + strings.Repeat("d", 100)
	deep, err := NewLayout(deepRoot, "dev")
	if err != nil || !strings.HasPrefix(deep.TunnelSocket(), runtimeDir) || len(deep.TunnelSocket()) > v1alpha1.MaxSocketPath {
		t.Errorf("deep state directory: %q, %v", deep.TunnelSocket(), err)
	}
	other, err := NewLayout(deepRoot+"2", "dev")
	if err != nil || other.RunDir == deep.RunDir {
		t.Errorf("two state directories share sockets in %s (%v)", other.RunDir, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/"+strings.Repeat("r", 100))
	if _, err := NewLayout(deepRoot, "dev"); err == nil || !strings.Contains(err.Error(), "107") || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("no short place: %v, want the limit and what to do", err)
	}
}

func TestPortsAreDistinctAndRemembered(t *testing.T) {
	names := portNames(8, 3)
	ports, err := choosePorts(t.Context(), names, map[string]int{}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]string{}
	for _, name := range names {
		port := ports[name]
		if port < cluster.PortMin || port > cluster.PortMax {
			t.Errorf("%s: port %d is outside %d to %d", name, port, cluster.PortMin, cluster.PortMax)
		}
		if other, twice := seen[port]; twice {
			t.Errorf("%s and %s share port %d", name, other, port)
		}
		seen[port] = name
	}
	if err := portsFree(t.Context(), ports, loopback); err != nil {
		t.Errorf("chosen ports are not free: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = choosePorts(t.Context(), []string{portAPIServer}, map[string]int{portAPIServer: port}, loopback)
	if !errors.Is(err, cluster.ErrPortInUse) || !strings.Contains(err.Error(), portAPIServer) {
		t.Errorf("choosePorts = %v, want ErrPortInUse that names the user", err)
	}
	if err := portsFree(t.Context(), map[string]int{portKwok: port}, loopback); !errors.Is(err, cluster.ErrPortInUse) {
		t.Errorf("portsFree = %v, want ErrPortInUse", err)
	}
}

func TestWriteFileKeepsTheOldOneOnFailure(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "f")
	if err := writeFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A directory in the way of the rename makes the last step fail.
	blocked := filepath.Join(dir, "blocked")
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(blocked, []byte("new"), 0o600); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("writing over a directory: %v, want an error that names it", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestForeignRuntimeDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := ownedAndPrivate(dir); !errors.Is(err, ErrNotOwned) {
		t.Errorf("a directory that all may write to: %v, want ErrNotOwned", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ownedAndPrivate(link); !errors.Is(err, ErrNotOwned) {
		t.Errorf("a symbolic link: %v, want ErrNotOwned", err)
	}
	if err := ownedAndPrivate(dir); err != nil {
		t.Errorf("the user's own: %v", err)
	}
}
