// SPDX-License-Identifier: Apache-2.0

package unpack_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/components/unpack"
)

// The files get the names that the go command looks for, and hold what is pinned.
func TestInto(t *testing.T) {
	dir := t.TempDir()
	if err := unpack.Into(dir); err != nil {
		t.Fatal(err)
	}
	mod, sum := components.Module()
	for name, want := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := unpack.Into(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Into an absent directory: %v", err)
	}
}
