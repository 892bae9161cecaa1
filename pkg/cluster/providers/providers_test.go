// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// A cluster's provider is found by its name, and a name is not given twice.
func TestProviderOfACluster(t *testing.T) {
	root := t.TempDir()
	set := NewAt(root, Settings())
	for _, name := range Names() {
		home, err := cluster.NewHome(root, "a-"+name)
		if err != nil {
			t.Fatal(err)
		}
		if err := home.Claim(name); err != nil {
			t.Fatal(err)
		}
		if p, err := set.Of(home.Name); err != nil || p.Name() != name {
			t.Errorf("Of(%s) = %v, %v", home.Name, p, err)
		}
		if p, err := set.ForUp(home.Name, ""); err != nil || p.Name() != name {
			t.Errorf("up of %s without --provider: %v, %v", home.Name, p, err)
		}
		for _, other := range Names() {
			_, err := set.ForUp(home.Name, other)
			if errors.Is(err, cluster.ErrOtherProvider) != (other != name) {
				t.Errorf("up of %s with --provider %s: %v", home.Name, other, err)
			}
		}
	}
	if p, err := set.ForUp("new", ""); err != nil || p.Name() != cluster.Embedded {
		t.Errorf("a new cluster: %v, %v", p, err)
	}
	if _, err := set.ForUp("new", "lxc"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), strings.Join(Names(), " or ")) {
		t.Errorf("an unknown provider: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "a-kind", "provider"), []byte("cloud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Of("a-kind"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "another version") {
		t.Errorf("a provider of another fairlead: %v", err)
	}
}

// Incomplete clusters are listed, too, whichever provider started them.
func TestListShowsWhatIsHalfMade(t *testing.T) {
	root := t.TempDir()
	for _, name := range Names() {
		home, err := cluster.NewHome(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := home.Claim(name); err != nil {
			t.Fatal(err)
		}
	}
	list, err := NewAt(root, Settings()).List(t.Context())
	if err != nil || len(list) != len(Names()) {
		t.Fatalf("%v, %v", list, err)
	}
	for i, s := range list {
		if got := s.Summarize(); got.Health() != "incomplete" || got.Provider != Names()[i] || got.Name != Names()[i] {
			t.Errorf("got %+v", got)
		}
		if !strings.Contains(s.Problem(), "fairlead down") {
			t.Errorf("problem: %s", s.Problem())
		}
	}
	if list, err := NewAt(filepath.Join(root, "none"), Settings()).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("no directory: %v, %v", list, err)
	}
}
