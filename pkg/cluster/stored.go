package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// CompleteBundle returns a bundle with defaults filled in and checked, the
// default one for nil. The caller's stays as it is.
func CompleteBundle(given *v1alpha1.Bundle) (*v1alpha1.Bundle, error) {
	if given == nil {
		return bundle.Load(nil)
	}
	b := given.Defaulted()
	if errs := bundle.Validate(b); len(errs) > 0 {
		return nil, fmt.Errorf("the bundle: %w", errs.ToAggregate())
	}
	return b, nil
}

// StoreBundle writes the bundle that a cluster is made from.
func (h Home) StoreBundle(b *v1alpha1.Bundle) error {
	data, err := yaml.Marshal(b)
	if err != nil {
		return fmt.Errorf("encoding the bundle: %w", err)
	}
	return fsutil.WriteFile(h.BundleFile(), data, 0o600)
}

// StoredBundle is the bundle that a cluster was made from.
func (h Home) StoredBundle() (*v1alpha1.Bundle, error) {
	data, err := os.ReadFile(h.BundleFile())
	if err != nil {
		return nil, h.Incomplete("its bundle cannot be read: " + err.Error())
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", h.BundleFile(), err)
	}
	return b, nil
}

// Differs is the error for a cluster that exists with something else than is
// asked for: it would have to be made anew, and that is for the user to say.
func (h Home) Differs(has, asked string) error {
	return fmt.Errorf("cluster %q exists with %s, not %s: run \"fairlead down --name %s\" first, or use another --name",
		h.Name, has, asked, h.Name)
}

// SameBundle refuses another bundle than the one that the cluster has; nil asks for none.
func (h Home) SameBundle(asked, has *v1alpha1.Bundle) error {
	if asked == nil {
		return nil
	}
	asked, err := CompleteBundle(asked)
	if err != nil {
		return err
	}
	a, err1 := yaml.Marshal(asked)
	b, err2 := yaml.Marshal(has)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if string(a) != string(b) {
		return h.Differs("another bundle ("+h.BundleFile()+")", "the one in --filename")
	}
	return nil
}

// SaveLogs moves the logs of a failed Up out of the directory that goes away, to
// FailedLogs. It returns "" when nothing was logged.
func (h Home) SaveLogs() (string, error) {
	entries, err := os.ReadDir(h.LogDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	if len(entries) == 0 {
		return "", nil
	}
	target := h.FailedLogs()
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	if err := os.RemoveAll(target); err != nil {
		return "", fmt.Errorf("replacing older logs: %w", err)
	}
	if err := os.Rename(h.LogDir(), target); err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	return target, nil
}
