// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// TestCases proves that a definition has exactly the findings that testdata/cases expects.
func TestCases(t *testing.T) {
	for _, c := range crdtest.Cases(t) {
		t.Run(c.Name, func(t *testing.T) { crdtest.CheckDefinition(t, c) })
	}
}

// TestChanges proves the same of changes, with testdata/changes.
func TestChanges(t *testing.T) {
	for _, c := range crdtest.Changes(t) {
		t.Run(c.Name, func(t *testing.T) { crdtest.CheckChange(t, c) })
	}
}

// TestSet proves that definitions are compared with each other and matched with older ones
// by name.
func TestSet(t *testing.T) {
	a := (&crdtest.Case{File: "crontabs.yaml", Index: 700}).Definition(t, nil)
	b := (&crdtest.Case{File: "shirts.yaml", Index: 700, Set: map[string]any{"spec.names.shortNames": []any{"ct"}}}).Definition(t, nil)
	findings, err := lint.Set(t.Context(), []*crd.Definition{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || findings[0].Rule != "names-conflict" || findings[0].Field != "spec.names.shortNames[0]" || !strings.Contains(findings[0].Message, a.Name) {
		t.Errorf("findings %+v", findings)
	}
	findings, err = lint.Set(t.Context(), []*crd.Definition{a}, map[string]*crd.Definition{"cronjobs." + a.Spec.Group: a})
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || findings[0].Rule != "name-changed" || findings[0].Level != lint.Error {
		t.Errorf("findings of a definition under another name: %+v", findings)
	}
}
