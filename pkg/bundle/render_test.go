// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite golden files")

// load reads a configuration that must be valid.
func load(t *testing.T, config string) *v1alpha1.Bundle {
	t.Helper()
	b, err := bundle.Load([]byte(bundletest.Old(config)))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return b
}

func render(t *testing.T, b *v1alpha1.Bundle) *bundle.Output {
	t.Helper()
	out, err := bundle.Render(b)
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	return out
}

// variants are the configurations that every test of rendered things runs over:
// the files of testdata/config.
func variants(t *testing.T) map[string]*v1alpha1.Bundle {
	t.Helper()
	files, err := filepath.Glob("testdata/config/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("testdata/config: %d files, error %v", len(files), err)
	}
	out := map[string]*v1alpha1.Bundle{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".yaml")] = mustLoad(t, string(data))
	}
	return out
}

// text is everything a bundle renders, for golden files.
func text(t *testing.T, out *bundle.Output) string {
	t.Helper()
	var s strings.Builder
	for _, o := range out.Objects {
		data, err := bundle.EncodeYAML(o)
		if err != nil {
			t.Fatal(err)
		}
		s.WriteString("---\n" + string(data))
	}
	for _, f := range slices.Concat(out.HostFiles, out.SchedulerFiles, out.KubeadmFiles) {
		s.WriteString("--- # file " + f.Path + "\n" + string(f.Data))
	}
	return s.String()
}

// TestRenderGolden observes SCHED-36 of docs/requirements.md.
// It also observes KON-08 and KON-09 of docs/requirements.md.
// It also observes OLD-25 of docs/requirements.md.
func TestRenderGolden(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			got := text(t, render(t, b))
			golden := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (run with -update)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("rendered %s differs from %s (-want +got), run with -update if that is meant:\n%s", name, golden, diff)
			}
		})
	}
}
