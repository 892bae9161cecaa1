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

// DefaultName is the name of a cluster when none is given.
const DefaultName = "dev"

// maxNameLength keeps names short enough for sockets, host names and context names.
const maxNameLength = 40

// Home is where the state of one cluster is. The name alone decides it, so one
// name cannot stand for two clusters of different providers.
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
// directory. The XDG specification has relative values ignored.
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
// are no DNS labels or too long, and touches nothing.
func NewHome(root, name string) (Home, error) {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return Home{}, fmt.Errorf("cluster name %q: use lower-case letters, digits and '-', such as \"dev\" or \"test-1\"", name)
	}
	if len(name) > maxNameLength {
		return Home{}, fmt.Errorf("cluster name %q has %d characters: use at most %d", name, len(name), maxNameLength)
	}
	return Home{Name: name, Dir: filepath.Join(root, name)}, nil
}

// LogDir holds log files.
func (h Home) LogDir() string { return filepath.Join(h.Dir, "logs") }

// ConfigDir holds kubeconfigs and configuration files.
func (h Home) ConfigDir() string { return filepath.Join(h.Dir, "config") }

// PKIDir holds certificates and keys, under the names that kubeadm uses.
func (h Home) PKIDir() string { return filepath.Join(h.Dir, "pki") }

// StateFile describes the cluster; see [Record].
func (h Home) StateFile() string { return filepath.Join(h.Dir, "cluster.json") }

// BundleFile is the Bundle that the cluster was made from, defaults filled in.
func (h Home) BundleFile() string { return filepath.Join(h.ConfigDir(), "bundle.yaml") }

// AdminKubeconfig is the kubeconfig of the cluster's administrator.
func (h Home) AdminKubeconfig() string { return h.Kubeconfig("admin") }

// Kubeconfig is the kubeconfig of one identity.
func (h Home) Kubeconfig(who string) string { return filepath.Join(h.ConfigDir(), who+".kubeconfig") }

// FailedLogs keeps the logs of an Up that failed and cleaned up after itself.
func (h Home) FailedLogs() string {
	return filepath.Join(filepath.Dir(filepath.Dir(h.Dir)), "failed-logs", h.Name)
}

// previousContext remembers the user's current context of before Up.
func (h Home) previousContext() string { return filepath.Join(h.Dir, "previous-context") }

// LockFile stands beside Dir, because Dir comes and goes while the lock is held.
func (h Home) LockFile() string { return h.Dir + ".lock" }

// providerFile says whose cluster it is, whatever becomes of the rest.
func (h Home) providerFile() string { return filepath.Join(h.Dir, "provider") }

// Names of the providers.
const (
	Embedded = "embedded"
	Kind     = "kind"
)

// Provider returns whose cluster this is; "" if there is none. A directory that
// does not say is an embedded cluster's, which have none to remember.
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

// Claim makes the directory for a new cluster of the provider. Call it with the
// lock held and before anything else is made.
func (h Home) Claim(provider string) error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return fmt.Errorf("creating the cluster's directories: %w", err)
	}
	return fsutil.WriteFile(h.providerFile(), []byte(provider+"\n"), 0o600)
}

// CheckProvider refuses a name that is another provider's.
func (h Home) CheckProvider(provider string) error {
	has, err := h.Provider()
	if err != nil || has == "" || has == provider {
		return err
	}
	return fmt.Errorf("%w: cluster %q exists with --provider %s, not %s: run \"fairlead down --name %s\" first, or use another --name",
		ErrOtherProvider, h.Name, has, provider, h.Name)
}

// stateVersion is raised when a state or the layout change in a way that an
// older or newer fairlead cannot read.
const stateVersion = 1

// Phase says how far a cluster has come.
type Phase string

const (
	// PhaseCreating: Up has begun and not ended. Found with nobody at work, it
	// means that Up was killed.
	PhaseCreating Phase = "creating"
	// PhaseReady: Up has ended well once; the cluster can be started again.
	PhaseReady Phase = "ready"
)

// Record is what is remembered of any cluster, in StateFile. Providers put it
// first into what they remember.
type Record struct {
	// Version is stateVersion of the fairlead that wrote it.
	Version int `json:"stateVersion"`
	// Name is the cluster's name.
	Name string `json:"name"`
	// Phase is how far the cluster has come.
	Phase Phase `json:"phase"`
	// Created is when Up began.
	Created time.Time `json:"created"`
	// KubernetesVersion is the version of the control plane.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Nodes counts the nodes.
	Nodes int `json:"nodes"`
	// Kubeconfigs are the files that got the context: Down takes it out of them.
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
}

// NewRecord is the record of a cluster whose making begins.
func NewRecord(name string) Record {
	return Record{Version: stateVersion, Name: name, Phase: PhaseCreating, Created: time.Now().UTC()}
}

// Summary is what the record tells of the cluster at home.
func (r Record) Summary(home Home, provider string) Summary {
	return Summary{
		Name: r.Name, Provider: provider, KubernetesVersion: r.KubernetesVersion, Created: r.Created, Nodes: r.Nodes,
		Dir: home.Dir, Context: ContextName(home.Name),
	}
}

// ReadState reads the state of a cluster into state, whose Record is record. A
// directory without a readable state is ErrIncomplete: something interrupted the
// command that made it. ErrNotFound: there is no directory.
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
		return fmt.Errorf("cluster %q was made by another version of fairlead (state format %d, this one knows %d): remove it with \"fairlead down --name %s\" and make it anew",
			h.Name, record.Version, stateVersion, h.Name)
	}
	return nil
}

// Incomplete is the error for a half-written state directory.
func (h Home) Incomplete(why string) error {
	return fmt.Errorf("%w: %s: %s: an earlier \"up\" was cut off; run \"fairlead down --name %s\" and then \"up\" again", ErrIncomplete, h.Dir, why, h.Name)
}

// WriteJSON writes v as indented JSON, readable for the owner only.
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

// RemoveTraces removes what Down leaves last: the lock, and the directories
// above as far as they are empty.
func (h Home) RemoveTraces() {
	_ = os.Remove(h.LockFile())
	RemoveEmpty(filepath.Dir(h.FailedLogs()))
	RemoveEmpty(filepath.Dir(h.Dir), filepath.Dir(filepath.Dir(h.Dir)))
}

// RemoveEmpty removes directories as long as they are empty.
func RemoveEmpty(dirs ...string) {
	for _, dir := range dirs {
		if os.Remove(dir) != nil {
			return
		}
	}
}
