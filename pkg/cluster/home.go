// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// DefaultName is a cluster's name if the user gives none.
const DefaultName = "dev"

// maxNameLength keeps names short enough for sockets, host names and context names.
const maxNameLength = 40

// Home is where the state of one cluster is. It depends on the name alone, so
// clusters of different providers cannot have the same name.
type Home struct {
	// Name is the cluster's name.
	Name string
	// Dir is the cluster's state directory, mode 0700.
	Dir string
}

// Root is the directory that holds the state of all clusters:
// $XDG_STATE_HOME/fairlead/clusters, by default ~/.local/state/fairlead/clusters.
func Root() (string, error) {
	base, err := xdgDir("XDG_STATE_HOME", ".local/state")
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "fairlead", "clusters"), nil
}

// xdgDir returns the value of an XDG variable, or its default below the home
// directory. According to the XDG specification, it ignores relative values.
func xdgDir(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("neither %s nor a home directory is known: set %s to a directory of yours", variable, variable)
	}
	return filepath.Join(home, fallback), nil
}

// NewHome returns the home of a named cluster below root. It refuses names that
// are not DNS labels or are too long. It does not write to the file system.
func NewHome(root, name string) (Home, error) {
	if err := CheckName(name); err != nil {
		return Home{}, err
	}
	return Home{Name: name, Dir: filepath.Join(root, name)}, nil
}

// CheckName refuses the names that NewHome refuses.
func CheckName(name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("cluster name %q has %d characters: use at most %d", name, len(name), maxNameLength)
	}
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return fmt.Errorf("cluster name %q: use lower-case letters, digits and '-', such as \"dev\" or \"test-1\"", name)
	}
	return nil
}

// LogDir holds log files.
func (h Home) LogDir() string { return filepath.Join(h.Dir, "logs") }

// ConfigDir holds kubeconfigs and configuration files.
func (h Home) ConfigDir() string { return filepath.Join(h.Dir, "config") }

// PKIDir holds certificates and keys, under the names that kubeadm uses.
func (h Home) PKIDir() string { return filepath.Join(h.Dir, "pki") }

// StateFile describes the cluster; see [Record].
func (h Home) StateFile() string { return filepath.Join(h.Dir, "cluster.json") }

// BundleFile is the Bundle that the cluster was created from, with defaults
// filled in.
func (h Home) BundleFile() string { return filepath.Join(h.ConfigDir(), "bundle.yaml") }

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (h Home) AdminKubeconfig() string { return h.Kubeconfig("admin") }

// Kubeconfig is the kubeconfig of one identity.
func (h Home) Kubeconfig(who string) string { return filepath.Join(h.ConfigDir(), who+".kubeconfig") }

// FailedLogs keeps the logs of an Up that failed and cleaned up after itself.
func (h Home) FailedLogs() string {
	return filepath.Join(filepath.Dir(filepath.Dir(h.Dir)), "failed-logs", h.Name)
}

// previousContext stores the user's current context from before Up.
func (h Home) previousContext() string { return filepath.Join(h.Dir, "previous-context") }

// LockFile is next to Dir, because Dir is created and removed while a command
// holds the lock.
func (h Home) LockFile() string { return h.Dir + ".lock" }

// providerFile stores the name of the cluster's provider, even if the rest of
// the state is lost.
func (h Home) providerFile() string { return filepath.Join(h.Dir, "provider") }

// Names of the providers.
const (
	Embedded = "embedded"
	Kind     = "kind"
)

// Provider returns the name of the cluster's provider, or "" if there is no
// cluster. A directory without a provider file belongs to an embedded cluster,
// whose provider stores none.
func (h Home) Provider() (string, error) {
	data, err := os.ReadFile(h.providerFile())
	switch {
	case err == nil:
		return strings.TrimSpace(string(data)), nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("looking for cluster %q: %w", h.Name, err)
	case exists(h.Dir):
		return Embedded, nil
	}
	return "", nil
}

// Claim creates the directory for a new cluster of the provider. Call it with
// the lock held, before anything else is created.
func (h Home) Claim(provider string) error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return fmt.Errorf("creating the cluster's directories: %w", err)
	}
	return fsutil.WriteFile(h.providerFile(), []byte(provider+"\n"), 0o600)
}

// CheckProvider refuses a name that another provider's cluster has.
func (h Home) CheckProvider(provider string) error {
	has, err := h.Provider()
	if err != nil || has == "" || has == provider {
		return err
	}
	return fmt.Errorf("%w: cluster %q exists with --provider %s, not %s: run \"fairlead down --name %s\" first, or use another --name",
		ErrOtherProvider, h.Name, has, provider, h.Name)
}

// stateVersion increases when the state or the layout changes in a way that an
// older or newer fairlead cannot read.
const stateVersion = 1

// Phase is how far the creation of a cluster has got.
type Phase string

const (
	// PhaseCreating: Up has started and not finished. If no command holds the
	// lock, Up was killed.
	PhaseCreating Phase = "creating"
	// PhaseReady: Up has succeeded once, so the cluster can be started again.
	PhaseReady Phase = "ready"
)

// Record is what is stored about any cluster, in StateFile. Providers embed it
// as the first field of their own state.
type Record struct {
	// Version is the stateVersion of the fairlead that wrote it.
	Version int `json:"stateVersion"`
	// Name is the cluster's name.
	Name string `json:"name"`
	// Phase is how far the creation of the cluster has got.
	Phase Phase `json:"phase"`
	// Created is when Up started.
	Created time.Time `json:"created"`
	// KubernetesVersion is the version of the control plane.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Nodes counts the nodes.
	Nodes int `json:"nodes"`
	// Kubeconfigs are the files to which the context was added: Down removes it
	// from them.
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
}

// NewRecord returns the record of a cluster whose creation starts now.
func NewRecord(name string) Record {
	return Record{Version: stateVersion, Name: name, Phase: PhaseCreating, Created: time.Now().UTC()}
}

// Summary returns the part of the record that all providers report about the
// cluster at home.
func (r Record) Summary(home Home, provider string) Summary {
	return Summary{
		Name: r.Name, Provider: provider, KubernetesVersion: r.KubernetesVersion, Created: r.Created, Nodes: r.Nodes,
		Dir: home.Dir, Context: ContextName(home.Name),
	}
}

// ReadState reads the state of a cluster into state, whose Record is record. It
// fails with ErrNotFound if there is no directory, and with ErrIncomplete if the
// directory has no readable state: the command that created it was interrupted.
func (h Home) ReadState(state any, record *Record) error {
	if _, err := os.Stat(h.Dir); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %q: \"fairlead list\" shows what there is, \"fairlead up --name %s\" makes it", ErrNotFound, h.Name, h.Name)
	} else if err != nil {
		return fmt.Errorf("looking for cluster %q: %w", h.Name, err)
	}
	err := ReadJSON(h.StateFile(), state)
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, os.ErrNotExist), errors.As(err, &syntax), err == nil && record.Version == 0:
		return h.Incomplete("it has no readable " + h.StateFile())
	case err != nil:
		return err
	case record.Version != stateVersion:
		return fmt.Errorf("cluster %q was created by another version of fairlead (state format %d, this one supports %d): remove it with \"fairlead down --name %s\" and create it again",
			h.Name, record.Version, stateVersion, h.Name)
	}
	return nil
}

// Incomplete returns the error for an incomplete state directory.
func (h Home) Incomplete(why string) error {
	return fmt.Errorf("%w: %s: %s: an earlier \"up\" was cut off; run \"fairlead down --name %s\" and then \"up\" again", ErrIncomplete, h.Dir, why, h.Name)
}

// WriteJSON writes v as indented JSON that only the owner can read.
func WriteJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return fsutil.WriteFile(path, append(data, '\n'), 0o600)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// RemoveTraces removes what Down removes last: the lock, and the parent
// directories if they are empty.
func (h Home) RemoveTraces() {
	_ = os.Remove(h.LockFile())
	RemoveEmpty(filepath.Dir(h.FailedLogs()))
	RemoveEmpty(filepath.Dir(h.Dir), filepath.Dir(filepath.Dir(h.Dir)))
}

// RemoveEmpty removes the directories in order, until one is not empty.
func RemoveEmpty(dirs ...string) {
	for _, dir := range dirs {
		if os.Remove(dir) != nil {
			return
		}
	}
}
