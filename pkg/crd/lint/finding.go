// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

// Level says how bad a finding is.
type Level string

const (
	// Error is what the API server refuses, what loses data, or what never works.
	Error Level = "error"
	// Warning is what works but is likely to hurt, or what a person has to judge.
	Warning Level = "warning"
)

// Finding is one problem at one place.
type Finding struct {
	Level Level  `json:"level"`
	Rule  string `json:"rule"`
	// File, Document, Item and Line say where the field is. They are empty for a
	// definition that does not come from a file.
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"`
	Item     *int   `json:"item,omitempty"`
	Line     int    `json:"line,omitempty"`
	// Name is that of the definition.
	Name string `json:"name,omitempty"`
	// Field is the path in the v1 manifest.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`

	server bool // the API server refuses the definition
}

// at fills in where a finding is.
func at(d *crd.Definition, f Finding) Finding {
	f.Name = d.Name
	place(d.Document, &f)
	if f.Remedy == "" {
		f.Remedy = Rules[f.Rule]
	}
	return f
}

func place(doc *manifest.Document, f *Finding) {
	if doc == nil {
		return
	}
	f.File, f.Document, f.Line = doc.File, doc.Index, doc.Line(f.Field)
	if doc.Item >= 0 {
		f.Item = &doc.Item
	}
}

// Unreadable makes a finding of a document or definition that cannot be read.
func Unreadable(doc *manifest.Document, err error) Finding {
	f := Finding{Level: Error, Rule: "unreadable", Message: err.Error(), Remedy: Rules["unreadable"]}
	place(doc, &f)
	if doc.Object != nil {
		f.Name = doc.Object.GetName()
	}
	return f
}

// sorted orders findings by place and drops repetitions.
func sorted(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(findings, func(a, b Finding) bool {
		return a.File == b.File && a.Document == b.Document && a.Name == b.Name && a.Field == b.Field && a.Rule == b.Rule && a.Message == b.Message
	})
}

// Errors counts the findings of level Error.
func Errors(findings []Finding) (n int) {
	for _, f := range findings {
		if f.Level == Error {
			n++
		}
	}
	return n
}

// Refused returns the findings that keep the API server from accepting the definition.
func Refused(findings []Finding) (refused []Finding) {
	for _, f := range findings {
		if f.server {
			refused = append(refused, f)
		}
	}
	return refused
}
