// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/tinytest"
)

// withThird returns all providers and a third one, as one line in registered would.
func withThird(root string, third tinytest.Settings) *Set {
	return NewAt(root, append(Settings(), &third))
}

// TestThirdProvider checks that a provider needs only its own package and its registration to
// be found by name, and to bring clusters up and down.
func TestThirdProvider(t *testing.T) {
	root, kubeconfig := t.TempDir(), filepath.Join(t.TempDir(), "config")
	set := withThird(root, tinytest.Settings{Files: 3})
	if _, err := set.ForUp("x", "lxc"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), strings.Join(append(Names(), tinytest.Name), " or ")) {
		t.Errorf("an unknown provider: %v", err)
	}
	p, err := set.ForUp("x", tinytest.Name)
	if err != nil {
		t.Fatal(err)
	}
	up := cluster.UpOptions{Name: "x", Kubeconfig: kubeconfig}
	for range 2 { // it is created, then found running
		if err := p.Up(t.Context(), up); err != nil {
			t.Fatal(err)
		}
	}
	if config, err := clientcmd.LoadFromFile(kubeconfig); err != nil || config.CurrentContext != cluster.ContextName("x") {
		t.Errorf("the kubeconfig has context %q, %v", config.CurrentContext, err)
	}
	list, err := set.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Summarize().Health() != "ready" || list[0].Summarize().Nodes != 3 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := set.ForUp("x", cluster.Embedded); !errors.Is(err, cluster.ErrOtherProvider) {
		t.Errorf("up with another provider: %v", err)
	}
	if err := (&tinytest.Settings{Files: 4}).Provider(root).Up(t.Context(), up); err == nil || !strings.Contains(err.Error(), "3 files, not 4 files") {
		t.Errorf("up with other settings: %v", err)
	}
	if found, err := set.Of("x"); err != nil || found.Name() != tinytest.Name {
		t.Errorf("Of: %v, %v", found, err)
	}
	down := cluster.DownOptions{Name: "x", Kubeconfig: kubeconfig}
	if err := p.Down(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	if config, err := clientcmd.LoadFromFile(kubeconfig); err != nil || len(config.Contexts) > 0 {
		t.Errorf("contexts are left: %v, %v", config.Contexts, err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files are left: %v", err)
	}
	if err := p.Down(t.Context(), down); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("down once more: %v", err)
	}
}

// TestFailedUp checks what stays of a cluster whose creation fails: nothing but its logs, or
// all of it if the user wants to keep it. An interrupt is reported as such.
func TestFailedUp(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		retain bool
		want   error
		left   []string
	}{
		"failed":                {t.Context(), false, tinytest.ErrCreate, []string{"failed-logs/x/log"}},
		"failed, retained":      {t.Context(), true, tinytest.ErrCreate, []string{"clusters/x/file-0", "clusters/x/logs/log"}},
		"interrupted":           {interrupted, false, cluster.ErrInterrupted, []string{"failed-logs/x/log"}},
		"interrupted, retained": {interrupted, true, cluster.ErrInterrupted, []string{"clusters/x/file-0", "clusters/x/logs/log"}},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			p, err := withThird(filepath.Join(state, "clusters"), tinytest.Settings{Files: 1, Fail: true}).Named(tinytest.Name)
			if err != nil {
				t.Fatal(err)
			}
			kubeconfig := filepath.Join(t.TempDir(), "config")
			err = p.Up(c.ctx, cluster.UpOptions{Name: "x", Kubeconfig: kubeconfig, Retain: c.retain})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "look at the files") {
				t.Errorf("got %v, want %v with a hint", err, c.want)
			}
			for _, path := range c.left {
				if _, err := os.Stat(filepath.Join(state, path)); err != nil {
					t.Error(err)
				}
			}
			entries, _ := os.ReadDir(filepath.Join(state, "clusters"))
			if kept := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "x" }); kept != c.retain {
				t.Errorf("the cluster's directory is kept: %v, want %v", kept, c.retain)
			}
			if err := p.Up(t.Context(), cluster.UpOptions{Name: "x", Kubeconfig: kubeconfig}); errors.Is(err, cluster.ErrIncomplete) != c.retain {
				t.Errorf("up once more: %v", err)
			}
			if err := p.Down(t.Context(), cluster.DownOptions{Name: "x", Kubeconfig: kubeconfig}); err != nil && c.retain {
				t.Errorf("down: %v", err)
			}
		})
	}
}
