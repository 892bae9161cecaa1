// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// lintOptions are the flags of "fairlead crd lint".
type lintOptions struct {
	files     []string
	old       []string
	recursive bool
	strict    bool
	suppress  []string
	output    string

	streams genericiooptions.IOStreams
}

const lintLong = `Check CustomResourceDefinitions without a cluster. The command runs the validation of
kube-apiserver: names, versions, structural schemas, defaults, CEL rules and their
cost, printer columns, selectable fields, conversion. It also reports definitions
that kube-apiserver accepts and that cause problems later: for example a printer
column without a field, or versions that lose data without a conversion webhook.

With --old, the command also says whether it is safe to replace an older generation
of the definitions: stored versions, removed fields, tightened validation, changed
conversion. Take the older generation from a file of your last release, or from a
cluster: kubectl get crd NAME -o yaml.

Exit code: 0 no errors, 1 at least one finding of level error (with --strict: or
warning), 2 the command cannot do its work.`

func newLint(streams genericiooptions.IOStreams) *cobra.Command {
	o := &lintOptions{streams: streams}
	cmd := &cobra.Command{
		Use: "lint FILE...", Short: "Check CustomResourceDefinitions, and changes of them", Long: lintLong,
		Example: "  fairlead crd lint config/crd/\n  fairlead crd lint new.yaml --old released.yaml\n" +
			"  kubectl get crd crontabs.stable.example.com -o yaml | fairlead crd lint new.yaml --old -",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, `file or directory with definitions, like an argument; "-" reads standard input`)
	f.StringArrayVar(&o.old, "old", nil, `file or directory with the definitions to be replaced; "-" reads standard input`)
	f.BoolVarP(&o.recursive, "recursive", "R", false, "also read the directories below a directory")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 for warnings as well")
	f.StringSliceVar(&o.suppress, "suppress", nil, "rules to leave out, for example conversion-none,column-path")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	return cmd
}

func (o *lintOptions) run(ctx context.Context) error {
	if o.output != "table" && o.output != "json" {
		return cannot(fmt.Errorf("--output %q: choose table or json", o.output))
	}
	for _, rule := range o.suppress {
		if _, ok := lint.Rules[rule]; !ok {
			return cannot(fmt.Errorf("--suppress %q: no such rule: choose from %s", rule, strings.Join(slices.Sorted(maps.Keys(lint.Rules)), ", ")))
		}
	}
	if slices.Contains(o.files, "-") && slices.Contains(o.old, "-") {
		return cannot(fmt.Errorf(`"-" names both the new and the old definitions: write one of them to a file`))
	}
	findings, count, err := o.judge(ctx)
	if err != nil {
		return cannot(err)
	}
	findings = slices.DeleteFunc(findings, func(f lint.Finding) bool { return slices.Contains(o.suppress, f.Rule) })
	if err := o.print(findings, count); err != nil {
		return cannot(err)
	}
	if errs := lint.Errors(findings); errs > 0 || o.strict && len(findings) > 0 {
		return &Error{1, fmt.Errorf("%d errors and %d warnings in %d definitions", errs, len(findings)-errs, count)}
	}
	return nil
}

// judge returns the findings and the number of definitions.
func (o *lintOptions) judge(ctx context.Context) ([]lint.Finding, int, error) {
	docs, err := load(o.files, o.recursive, o.streams.In)
	if err != nil {
		return nil, 0, err
	}
	old, err := o.older()
	if err != nil {
		return nil, 0, fmt.Errorf("--old: %w", err)
	}
	var all []*crd.Definition
	var findings []lint.Finding
	for _, d := range docs {
		if d.Err == nil && d.GroupKind() != crd.GroupKind {
			continue
		}
		definition, err := crd.Decode(d)
		if err != nil {
			findings = append(findings, lint.Unreadable(d, err))
			continue
		}
		all = append(all, definition)
	}
	if len(all) == 0 && len(findings) == 0 {
		return nil, 0, fmt.Errorf("%s: no CustomResourceDefinition found in %d documents", strings.Join(o.files, ", "), len(docs))
	}
	more, err := lint.Set(ctx, all, old)
	return append(findings, more...), len(all) + len(findings), err
}

func (o *lintOptions) older() (map[string]*crd.Definition, error) {
	if len(o.old) == 0 {
		return nil, nil
	}
	all, err := definitions(o.old, o.recursive, o.streams.In)
	if err != nil {
		return nil, err
	}
	byName := map[string]*crd.Definition{}
	for _, d := range all {
		if other := byName[d.Name]; other != nil {
			return nil, fmt.Errorf("%s is in %s and in %s: name one older generation", d.Name, other.Document.Source(), d.Document.Source())
		}
		byName[d.Name] = d
	}
	return byName, nil
}

// report is the output of -o json.
type report struct {
	Definitions int            `json:"definitions"`
	Errors      int            `json:"errors"`
	Warnings    int            `json:"warnings"`
	Findings    []lint.Finding `json:"findings"`
}

func (o *lintOptions) print(findings []lint.Finding, count int) error {
	errs := lint.Errors(findings)
	r := report{Definitions: count, Errors: errs, Warnings: len(findings) - errs, Findings: findings}
	if r.Findings == nil {
		r.Findings = []lint.Finding{}
	}
	format := o.output
	if format == "table" {
		format = ""
	}
	return ui.Write(o.streams.Out, format, r, func(w io.Writer) error { return table(w, r) })
}

func table(w io.Writer, r report) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-8s %-20s %s\n", f.Level, f.Rule, place(f))
		if f.Field != "" {
			fmt.Fprintf(&b, "         %s\n", f.Field)
		}
		fmt.Fprintf(&b, "         %s\n", strings.ReplaceAll(f.Message, "\n", "\n         "))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "         Remedy: %s.\n", f.Remedy)
		}
	}
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "%d definitions checked, nothing found\n", r.Definitions)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// place says where a finding is, as editors and compilers do.
func place(f lint.Finding) string {
	file := f.File
	if file == "-" {
		file = "standard input"
	}
	text := fmt.Sprintf("%s:%d", file, f.Line)
	if f.Document > 1 {
		text += fmt.Sprintf(" (document %d)", f.Document)
	}
	if f.Name != "" {
		text += " " + f.Name
	}
	return text
}
