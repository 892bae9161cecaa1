// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestProfilePages: each built-in profile has a page, and what the pages show is a legal Bundle.
func TestProfilePages(t *testing.T) {
	const dir = "../../docs/profiles"
	all := &v1alpha1.Bundle{}
	all.Scheduler.BuiltInProfiles = v1alpha1.BuiltInProfiles{
		Standard: &v1alpha1.StandardProfile{}, Binpack: &v1alpha1.BinpackProfile{},
		Spread: &v1alpha1.SpreadProfile{}, Batch: &v1alpha1.BatchProfile{},
	}
	for _, name := range scheduler.ProfileNames(all.Defaulted()) {
		if _, err := os.Stat(filepath.Join(dir, name+".md")); err != nil {
			t.Error(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%v, %v", pages, err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := example.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s shows no Bundle", page)
		}
		for _, yaml := range found {
			if _, err := bundle.Load([]byte(bundletest.Header + string(yaml[1]))); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
