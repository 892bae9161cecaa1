// SPDX-License-Identifier: Apache-2.0

package clusterflags_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// TestFindings: findings that are to be ignored become warnings, also if the list has spaces, as in "version, lease".
func TestFindings(t *testing.T) {
	findings := []install.Finding{{ID: "version"}, {ID: "lease"}, {ID: "other", Warning: true}}
	for _, c := range []struct {
		ignore  []string
		refused []string
	}{
		{nil, []string{"version", "lease"}},
		{[]string{"version"}, []string{"lease"}},
		{[]string{"version", " lease "}, nil},
		{[]string{" all"}, nil},
		{[]string{"versions"}, []string{"version", "lease"}},
	} {
		text := ""
		if err := clusterflags.Findings(&bytes.Buffer{}, findings, c.ignore); err != nil {
			text = err.Error()
		}
		for _, f := range findings {
			want := false
			for _, id := range c.refused {
				want = want || id == f.ID
			}
			if strings.Contains(text, "--ignore-preflight-errors="+f.ID) != want {
				t.Errorf("ignored %q: refused %s: %v, want %v:\n%s", c.ignore, f.ID, !want, want, text)
			}
		}
	}
}
