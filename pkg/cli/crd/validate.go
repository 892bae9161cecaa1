// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// validateOptions are the flags of "fairlead crd validate".
type validateOptions struct {
	definitions     []string
	old             string
	recursive       bool
	subresource     string
	namespace       string
	fieldValidation string
	output          string

	streams genericiooptions.IOStreams
}

const validateLong = `Show what kube-apiserver would answer to objects of a CustomResourceDefinition, without
a cluster. Each object is pruned and gets its defaults; the command then runs the
validation of the schema, of lists, of metadata, of embedded objects and of the CEL
rules, with the code of kube-apiserver. Unknown fields and deprecated versions give
the API server's warnings.

With --old-object, each object replaces the old object of the same kind, namespace and
name. Transition rules run, and errors in unchanged parts are tolerated, as the API
server does.

With -o yaml or json, the command prints the accepted objects as the API server stores
them: in the storage version, unless a webhook would convert them. Admission webhooks,
policies and quotas are not part of the answer.

Exit code: 0 all objects are accepted, 1 at least one is refused, 2 the command cannot
do its work.`

func newValidate(streams genericiooptions.IOStreams) *cobra.Command {
	o := &validateOptions{streams: streams}
	cmd := &cobra.Command{
		Use: "validate -f CRD OBJECT...", Short: "Show what the API server would say about objects", Long: validateLong,
		Example: "  fairlead crd validate -f crd.yaml crontab.yaml\n  fairlead crd validate -f crd.yaml crontab.yaml -o yaml\n" +
			"  fairlead crd validate -f crd.yaml new.yaml --old-object old.yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.definitions, "filename", "f", nil, `file or directory with the definitions; "-" reads standard input`)
	f.StringVar(&o.old, "old-object", "", `file with the objects that are replaced; "-" reads standard input`)
	f.BoolVarP(&o.recursive, "recursive", "R", false, "also read the directories below a directory")
	f.StringVar(&o.subresource, "subresource", "", `"status" writes the status of --old-object`)
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the request (default: that of the object, or default)")
	f.StringVar(&o.fieldValidation, "field-validation", "warn", "what to do with unknown and repeated fields: strict (like kubectl), warn or ignore")
	f.StringVarP(&o.output, "output", "o", "", "yaml or json: print the objects as stored")
	return cmd
}

// complete checks the flags.
func (o *validateOptions) complete(args []string) error {
	if o.output != "" && o.output != "yaml" && o.output != "json" {
		return fmt.Errorf("--output %q: choose yaml or json", o.output)
	}
	if len(o.definitions) == 0 {
		return errors.New("no definition given: name its file with -f")
	}
	if o.subresource != "" && (o.subresource != "status" || o.old == "") {
		return fmt.Errorf("--subresource %q: the only choice is status, together with --old-object", o.subresource)
	}
	modes := map[string]string{"strict": metav1.FieldValidationStrict, "warn": metav1.FieldValidationWarn, "ignore": metav1.FieldValidationIgnore}
	mode, ok := modes[strings.ToLower(o.fieldValidation)]
	if !ok {
		return fmt.Errorf("--field-validation %q: choose strict, warn or ignore", o.fieldValidation)
	}
	o.fieldValidation = mode
	stdin := 0
	for _, p := range slices.Concat(o.definitions, args, []string{o.old}) {
		if p == manifest.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return errors.New(`"-" is given more than once: standard input can be read only once`)
	}
	return nil
}

func (o *validateOptions) run(ctx context.Context, args []string) error {
	if err := o.complete(args); err != nil {
		return cannot(err)
	}
	validators, err := o.validators(ctx)
	if err != nil {
		return cannot(err)
	}
	objects, err := objects(args, o.recursive, o.streams.In)
	if err != nil {
		return cannot(err)
	}
	old, err := o.oldObjects()
	if err != nil {
		return cannot(err)
	}
	refused := 0
	var stored []*unstructured.Unstructured
	for _, d := range objects {
		result, err := o.answer(ctx, validators, d, old)
		if err != nil {
			return cannot(err)
		}
		o.report(d, result)
		if result.Err != nil {
			refused++
			continue
		}
		stored = append(stored, plain(d.Object, result.Stored))
	}
	if err := printObjects(o.streams.Out, o.output, stored); err != nil {
		return cannot(err)
	}
	if refused > 0 {
		return &Error{1, fmt.Errorf("the API server would refuse %d of %d objects", refused, len(objects))}
	}
	return nil
}

// plain leaves out what the API server makes up for each object.
func plain(given, stored *unstructured.Unstructured) *unstructured.Unstructured {
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		if _, ok, err := unstructured.NestedFieldNoCopy(given.Object, "metadata", field); err == nil && !ok {
			unstructured.RemoveNestedField(stored.Object, "metadata", field)
		}
	}
	return stored
}

func (o *validateOptions) validators(ctx context.Context) (map[schema.GroupKind]*validate.Validator, error) {
	all, err := definitions(o.definitions, o.recursive, o.streams.In)
	if err != nil {
		return nil, err
	}
	out := map[schema.GroupKind]*validate.Validator{}
	for _, d := range all {
		kind := schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}
		if out[kind] != nil {
			return nil, fmt.Errorf("%s: another definition of kind %s was given: name one", d.Document.Source(), kind)
		}
		if out[kind], err = validate.New(ctx, d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Document.Source(), err)
		}
	}
	return out, nil
}

// objects reads objects that are not definitions; all documents must be readable.
func objects(paths []string, recursive bool, stdin io.Reader) ([]*manifest.Document, error) {
	docs, err := load(paths, recursive, stdin)
	if err != nil {
		return nil, err
	}
	var out []*manifest.Document
	for _, d := range docs {
		if d.Err != nil {
			return nil, fmt.Errorf("%s: %w", d.Source(), d.Err)
		}
		if d.GroupKind() != crd.GroupKind {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there are only definitions: name files with objects of them", strings.Join(paths, ", "))
	}
	return out, nil
}

// oldObjects reads --old-object, by kind, namespace and name.
func (o *validateOptions) oldObjects() (map[string]*manifest.Document, error) {
	if o.old == "" {
		return nil, nil
	}
	docs, err := objects([]string{o.old}, o.recursive, o.streams.In)
	if err != nil {
		return nil, fmt.Errorf("--old-object: %w", err)
	}
	out := map[string]*manifest.Document{}
	for _, d := range docs {
		if other := out[key(d)]; other != nil {
			return nil, fmt.Errorf("--old-object: %s and %s are the same object: name it once", other.Source(), d.Source())
		}
		out[key(d)] = d
	}
	return out, nil
}

func key(d *manifest.Document) string {
	return d.GroupKind().String() + " " + d.Object.GetNamespace() + "/" + d.Object.GetName()
}

func (o *validateOptions) answer(ctx context.Context, validators map[schema.GroupKind]*validate.Validator, d *manifest.Document, old map[string]*manifest.Document) (*validate.Result, error) {
	v := validators[d.GroupKind()]
	if v == nil {
		return nil, fmt.Errorf("%s: no definition of kind %s given: name its file with -f", d.Source(), d.GroupKind())
	}
	options := validate.Options{Namespace: o.namespace, FieldValidation: o.fieldValidation}
	if o.old == "" {
		return v.Create(ctx, d.Raw, options), nil
	}
	before := old[key(d)]
	if before == nil {
		return nil, fmt.Errorf("%s: --old-object has no %s: old and new object must have the same kind, namespace and name", d.Source(), key(d))
	}
	if o.subresource == "status" {
		return v.UpdateStatus(ctx, d.Raw, before.Raw, options), nil
	}
	return v.Update(ctx, d.Raw, before.Raw, options), nil
}

// report writes what the API server says: to standard output, or next to objects that are
// printed there.
func (o *validateOptions) report(d *manifest.Document, r *validate.Result) {
	out := o.streams.Out
	if o.output != "" {
		out = o.streams.ErrOut
	}
	name := fmt.Sprintf("%s/%s", d.Object.GetKind(), d.Object.GetName())
	for _, w := range r.Warnings {
		fmt.Fprintf(out, "%s:%d: %s: Warning: %s\n", d.File, d.Line(quotedField(w)), name, w)
	}
	status := r.Status()
	switch {
	case r.Err == nil && o.output == "":
		fmt.Fprintf(out, "%s:%d: %s: accepted\n", d.File, d.Line(""), name)
	case status != nil && status.Details != nil && len(status.Details.Causes) > 0:
		for _, c := range status.Details.Causes {
			field := strings.TrimPrefix(c.Field, "<nil>")
			fmt.Fprintf(out, "%s:%d: %s: refused: %s\n", d.File, d.Line(field), name, strings.TrimPrefix(field+": "+c.Message, ": "))
		}
	case r.Err != nil:
		fmt.Fprintf(out, "%s:%d: %s: refused: %v\n", d.File, d.Line(""), name, r.Err)
	}
}

// quotedField is the path in a warning such as: unknown field "spec.a".
func quotedField(w string) string {
	rest, ok := strings.CutPrefix(w, `unknown field "`)
	if !ok {
		rest, ok = strings.CutPrefix(w, `duplicate field "`)
	}
	if !ok {
		return ""
	}
	field, _, _ := strings.Cut(rest, `"`)
	return field
}

// printObjects writes accepted objects: YAML documents, or a List in JSON if there are several.
func printObjects(out io.Writer, format string, all []*unstructured.Unstructured) error {
	switch {
	case format == "" || len(all) == 0:
		return nil
	case format == "json":
		var v any = all[0].Object
		if len(all) > 1 {
			items := make([]any, 0, len(all))
			for _, u := range all {
				items = append(items, u.Object)
			}
			v = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
		}
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = out.Write(append(text, '\n'))
		return err
	}
	for i, u := range all {
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}
