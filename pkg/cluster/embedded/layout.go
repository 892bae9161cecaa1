// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Layout returns the paths of one cluster's files. Everything is below Dir
// except the sockets, whose directory may have to be elsewhere because a
// socket's path must be short.
type Layout struct {
	cluster.Home
	// RunDir holds the sockets.
	RunDir string
}

// NewLayout returns the layout of a named cluster below root. It refuses names
// that are not DNS labels or are too long. It does not write to the file
// system.
func NewLayout(root, name string) (Layout, error) {
	home, err := cluster.NewHome(root, name)
	if err != nil {
		return Layout{}, err
	}
	l := Layout{Home: home}
	// The environment may have changed since the cluster was created, but its
	// sockets have not moved.
	if data, err := os.ReadFile(l.runDirFile()); err == nil && filepath.IsAbs(string(data)) {
		l.RunDir = string(data)
		return l, nil
	}
	for _, dir := range []string{filepath.Join(l.Dir, "run"), runtimeDir(l.Dir)} {
		l.RunDir = dir
		if len(l.TunnelSocket()) <= v1alpha1.MaxSocketPath && len(l.SupervisorSocket()) <= v1alpha1.MaxSocketPath {
			return l, nil
		}
	}
	return Layout{}, fmt.Errorf("no place for Unix sockets: %s and %s are too long (a socket path has %d bytes at most): set XDG_STATE_HOME or XDG_RUNTIME_DIR to a shorter directory",
		l.Dir, l.RunDir, v1alpha1.MaxSocketPath)
}

// runtimeDir returns a short directory for the sockets of the cluster in dir.
// It differs for every dir, so that two state roots never share sockets.
func runtimeDir(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:6])
	if base := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		return filepath.Join(base, "fairlead", id)
	}
	return filepath.Join(os.TempDir(), "fairlead-"+strconv.Itoa(os.Getuid()), id)
}

// makeDirs creates the directories of the cluster. The directory for sockets
// may be in a shared place such as /tmp, so makeDirs checks that it belongs to
// the user alone.
func (l Layout) makeDirs() error {
	for _, dir := range []string{l.Dir, l.PKIDir(), l.LogDir(), l.ConfigDir(), l.EtcdDir(), l.TokenDir(), filepath.Dir(l.RunDir), l.RunDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the cluster's directories: %w", err)
		}
	}
	if err := ownedAndPrivate(l.RunDir); err != nil {
		return err
	}
	if err := ownedAndPrivate(filepath.Dir(l.RunDir)); err != nil {
		return err
	}
	return writeFile(l.runDirFile(), []byte(l.RunDir), 0o600)
}

// runDirFile stores RunDir.
func (l Layout) runDirFile() string { return filepath.Join(l.Dir, "run-dir") }

// EtcdDir is etcd's data directory.
func (l Layout) EtcdDir() string { return filepath.Join(l.Dir, "etcd") }

// TokenDir holds the service-account tokens of agents and schedulers.
func (l Layout) TokenDir() string { return filepath.Join(l.Dir, "tokens") }

// ProgramsFile lists the programs that the supervisor runs.
func (l Layout) ProgramsFile() string { return filepath.Join(l.Dir, "programs.json") }

// PKI is a file in PKIDir.
func (l Layout) PKI(name string) string { return filepath.Join(l.PKIDir(), name) }

// Log is the log file of a program.
func (l Layout) Log(program string) string { return filepath.Join(l.LogDir(), program+".log") }

// Token is the file of a projected token.
func (l Layout) Token(name string) string { return filepath.Join(l.TokenDir(), name, "token") }

// TunnelSocket is where the Konnectivity server listens for kube-apiserver.
func (l Layout) TunnelSocket() string { return filepath.Join(l.RunDir, "konnectivity-server.socket") }

// StateSocket is where the Konnectivity server shows its state.
func (l Layout) StateSocket() string { return filepath.Join(l.RunDir, "konnectivity-state.socket") }

// SupervisorSocket is where the supervisor listens.
func (l Layout) SupervisorSocket() string { return filepath.Join(l.RunDir, "supervisor.sock") }

// ErrNotOwned is returned if a directory in a shared place belongs to another
// user, or other users may write to it.
var ErrNotOwned = errors.New("directory is not owned by this user alone")
