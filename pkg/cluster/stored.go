// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// CompleteBundle returns a bundle for a cluster with this range of Services: with
// defaults filled in and validated, or the default bundle for nil. It does not change
// the caller's bundle.
func CompleteBundle(given *v1alpha1.Bundle, services string) (*v1alpha1.Bundle, error) {
	if given == nil {
		var err error
		if given, err = bundle.Load(nil); err != nil {
			return nil, err
		}
	}
	b := given.Defaulted()
	if len(b.Konnectivity.Server.NonNodeCIDRs) == 0 {
		b.Konnectivity.Server.NonNodeCIDRs = []string{services}
	}
	if errs := bundle.Validate(b); len(errs) > 0 {
		return nil, fmt.Errorf("the bundle: %w", errs.ToAggregate())
	}
	return b, nil
}

// StoreBundle writes the bundle that a cluster is created from.
func (h Home) StoreBundle(b *v1alpha1.Bundle) error {
	data, err := bundle.Encode(b)
	if err != nil {
		return err
	}
	return fsutil.WriteFile(h.BundleFile(), data, 0o600)
}

// StoredBundle returns the bundle that a cluster was created from.
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

// Differs returns the error for an existing cluster that differs from the
// requested one: the cluster would have to be recreated, and the user must
// decide that.
func (h Home) Differs(has, asked string) error {
	return fmt.Errorf("cluster %q exists with %s, not %s: run \"fairlead down --name %s\" first, or use another --name",
		h.Name, has, asked, h.Name)
}

// SameBundle refuses a bundle other than the one that the cluster has; nil
// requests none.
func (h Home) SameBundle(asked, has *v1alpha1.Bundle, services string) error {
	if asked == nil {
		return nil
	}
	asked, err := CompleteBundle(asked, services)
	if err != nil {
		return err
	}
	if has, err = CompleteBundle(has, services); err != nil { // a field may be younger than the cluster
		return err
	}
	a, err1 := bundle.Encode(asked)
	b, err2 := bundle.Encode(has)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if string(a) != string(b) {
		return h.Differs("another bundle ("+h.BundleFile()+")", "the one in --filename")
	}
	return nil
}

// SaveLogs moves the logs of a failed Up to FailedLogs, out of the directory
// that will be removed. It returns "" if there are no logs.
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
