// SPDX-License-Identifier: Apache-2.0

package crdtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// Tool answers to an object of a case as "fairlead crd validate" does.
func (c *Case) Tool(t *testing.T, v *validate.Validator, d *crd.Definition, o ObjectCase, i int) *validate.Result {
	options := validate.Options{}
	if o.Strict {
		options.FieldValidation = "Strict"
	}
	body := c.Body(d, o, i, o.Object)
	switch {
	case o.Old == nil:
		return v.Create(t.Context(), body, options)
	case o.Status:
		return v.UpdateStatus(t.Context(), body, c.Body(d, o, i, o.Old), options)
	default:
		return v.Update(t.Context(), body, c.Body(d, o, i, o.Old), options)
	}
}

// CheckDefinition wants lint to say what a case expects of its definition.
func CheckDefinition(t *testing.T, c *Case) {
	t.Helper()
	d := c.Definition(t, c.Schema)
	findings, err := lint.Definition(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	refused := lint.Refused(findings)
	var got []string
	for _, f := range findings {
		if f.Remedy == "" {
			t.Errorf("%s has no remedy", f.Rule)
		}
		if !slices.ContainsFunc(refused, func(r lint.Finding) bool { return cmp.Equal(r, f, cmp.AllowUnexported(lint.Finding{})) }) {
			got = append(got, string(f.Level)+" "+f.Rule)
		}
	}
	CompareErrors(t, c.Refused, len(refused), func(i int) (string, string) { return refused[i].Field, refused[i].Message })
	if diff := cmp.Diff(slices.Sorted(slices.Values(c.Findings)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, findings)
	}
}

// CheckObjects wants validate to say what a case expects of its objects.
func CheckObjects(t *testing.T, c *Case) {
	t.Helper()
	if len(c.Refused) > 0 {
		return
	}
	d := c.Definition(t, c.Schema)
	v, err := validate.New(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range c.Objects {
		name := fmt.Sprintf("object %d %s", i, o.Name)
		r := c.Tool(t, v, d, o, i)
		CompareWarnings(t, name, d, o.Warnings, r.Warnings)
		status := r.Status()
		switch {
		case status == nil && r.Err != nil:
			t.Errorf("%s: %v", name, r.Err)
		case o.Code != 0 || len(o.Errors) > 0:
			if status == nil {
				t.Errorf("%s is accepted", name)
				continue
			}
			if o.Code != 0 && o.Code != status.Code {
				t.Errorf("%s: code %d, want %d: %s", name, status.Code, o.Code, status.Message)
			}
			if status.Code == 422 {
				causes := status.Details.Causes
				CompareErrors(t, o.Errors, len(causes), func(i int) (string, string) { return causes[i].Field, causes[i].Message })
			}
		case r.Err != nil:
			t.Errorf("%s is refused: %v", name, r.Err)
		default:
			if got := r.Stored.GroupVersionKind().Version; got != crd.StorageVersion(d.CustomResourceDefinition) {
				t.Errorf("%s is stored in %s", name, got)
			}
			if diff := cmp.Diff(AsJSON(o.Stored), Content(r.Stored.Object)); diff != "" {
				t.Errorf("%s as stored (-want +got):\n%s", name, diff)
			}
		}
	}
}

// CheckChange wants lint to say what a change expects.
func CheckChange(t *testing.T, c *Change) {
	t.Helper()
	old, current := c.Generations(t)
	findings, err := lint.Change(t.Context(), current, old)
	if err != nil {
		t.Fatal(err)
	}
	var got, text []string
	for _, f := range findings {
		got = append(got, string(f.Level)+" "+f.Rule)
		text = append(text, fmt.Sprintf("%s %s: %s", f.Rule, f.Field, f.Message))
		if f.Remedy == "" && f.Rule != "column-removed" {
			t.Errorf("%s has no remedy", f.Rule)
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(c.Findings))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%s", diff, strings.Join(text, "\n"))
	}
}
