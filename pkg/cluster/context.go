package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// AddContext merges the cluster's kubeconfig into the user's file, explicit or
// the usual one, and remembers in known that it did; save writes that down. The
// cluster is whole before, so a problem with the user's file leaves it running.
func (h Home) AddContext(p Progress, explicit string, known *[]string, save func() error) error {
	err := Step(p, "Writing context "+ContextName(h.Name), func() (string, error) {
		admin, err := os.ReadFile(h.AdminKubeconfig())
		if err != nil {
			return "", err
		}
		file, previous, err := MergeKubeconfig(h.Name, explicit, admin)
		if err != nil {
			return "", err
		}
		// Down may run in another directory.
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
		if !slices.Contains(*known, file) {
			*known = append(*known, file)
			if err := save(); err != nil {
				return file, err
			}
		}
		if previous == "" || previous == ContextName(h.Name) {
			return file, nil
		}
		return file, fsutil.WriteFile(h.previousContext(), []byte(previous), 0o600)
	})
	if err != nil {
		return fmt.Errorf("%w\nthe cluster runs: \"fairlead kubeconfig --name %s\" prints its kubeconfig, \"up\" again writes the context", err, h.Name)
	}
	return nil
}

// PreviousContext is the user's current context of before Up; "" if there was none.
func (h Home) PreviousContext() string {
	data, _ := os.ReadFile(h.previousContext())
	return string(data)
}

// RemoveContexts takes the context out of several kubeconfig files, as
// RemoveKubeconfig does; "" is the user's usual one.
func (h Home) RemoveContexts(server, previous string, files []string) (bool, error) {
	removed := false
	var errs []error
	for _, file := range files {
		had, err := RemoveKubeconfig(h.Name, file, server, previous)
		removed, errs = removed || had, append(errs, err)
	}
	return removed, errors.Join(errs...)
}
