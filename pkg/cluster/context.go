// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// AddContext merges the cluster's kubeconfig into the user's file, explicit or
// the usual one, and remembers in known that it did; save writes that down. The
// cluster is whole before, so a problem with the user's file leaves it running.
func (h Home) AddContext(p progress.Reporter, explicit string, known *[]string, save func() error) error {
	err := progress.Step(p, "Writing context "+ContextName(h.Name), func() (string, error) {
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

// leftContext is what is remembered of a cluster that is gone while its context is not,
// because a kubeconfig could not be written.
type leftContext struct {
	Server      string   `json:"server,omitempty"`
	Previous    string   `json:"previous,omitempty"`
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
}

// leftContextFile is next to Dir, which has been removed.
func (h Home) leftContextFile() string { return h.Dir + ".context" }

// RemoveContexts removes the context from several kubeconfig files, as RemoveKubeconfig
// does; "" is the user's default file. It stores what failed, so that the next call can
// complete it.
func (h Home) RemoveContexts(server, previous string, files []string) (bool, error) {
	var left leftContext
	if err := ReadJSON(h.leftContextFile(), &left); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	server, previous = cmp.Or(server, left.Server), cmp.Or(previous, left.Previous)
	removed := false
	var errs []error
	var failed []string
	for _, file := range distinct(slices.Concat(left.Kubeconfigs, files)) {
		had, err := RemoveKubeconfig(h.Name, file, server, previous)
		removed = removed || had
		if err != nil {
			errs, failed = append(errs, err), append(failed, file)
		}
	}
	if len(errs) > 0 {
		errs = append(errs, WriteJSON(h.leftContextFile(), leftContext{Server: server, Previous: previous, Kubeconfigs: failed}))
	} else if err := os.Remove(h.leftContextFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// distinct names every file once, the user's usual ones for "".
func distinct(files []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, given := range files {
		names := []string{given}
		if given == "" {
			names = pathOptions("").GetLoadingPrecedence()
		}
		for _, name := range names {
			if abs, err := filepath.Abs(name); err == nil {
				name = abs
			}
			if key := kubeconfigfile.Resolve(name); !seen[key] {
				seen[key] = true
				out = append(out, name)
			}
		}
	}
	return out
}
