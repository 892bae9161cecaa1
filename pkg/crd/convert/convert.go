// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// Level says how bad a problem is.
type Level string

const (
	// Error is what makes requests fail or loses data.
	Error Level = "error"
	// Warning is what the API server tolerates.
	Warning Level = "warning"
)

// The defaults of Options.
const (
	// Limit is kube-apiserver's time limit of a call.
	Limit = 30 * time.Second
	// DefaultSlow is a tenth of a second: the API server calls the webhook once per object
	// when it fills a watch cache.
	DefaultSlow = 100 * time.Millisecond
)

// Options of a run; the zero value has the defaults.
type Options struct {
	// Slow is how long a call may take without a warning.
	Slow time.Duration
	// Limit is how long a call may take at all.
	Limit time.Duration
}

// Problem is one mistake of the webhook.
type Problem struct {
	Level Level  `json:"level"`
	Rule  string `json:"rule"`
	// Object is the sample, From and To the versions of the call.
	Object string `json:"object,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	// Field is a path in the object.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Call is one request.
type Call struct {
	Review  string        `json:"reviewVersion"`
	To      string        `json:"to"`
	Objects int           `json:"objects"`
	Took    time.Duration `json:"tookNanoseconds"`
}

// Report is the result of a run.
type Report struct {
	Definition string    `json:"definition"`
	Webhook    string    `json:"webhook"`
	Objects    int       `json:"objects"`
	Calls      []Call    `json:"calls"`
	Problems   []Problem `json:"problems"`
}

// Errors counts the problems of level Error.
func (r *Report) Errors() (n int) {
	for _, p := range r.Problems {
		if p.Level == Error {
			n++
		}
	}
	return n
}

// run is the state of Run.
type run struct {
	definition *apiextensionsv1.CustomResourceDefinition
	validator  *validate.Validator
	endpoint   Endpoint
	options    Options
	report     *Report
}

// Run converts each object to every other version and back. Objects are samples of the
// definition in any of its versions; for each version, an object with nothing but metadata
// is added, because a webhook must convert every object that may be stored.
func Run(ctx context.Context, d *crd.Definition, objects []*unstructured.Unstructured, e Endpoint, o Options) (*Report, error) {
	if len(d.Spec.Versions) < 2 {
		return nil, fmt.Errorf("%s has one version only: there is nothing to convert", d.Name)
	}
	validator, err := validate.New(ctx, d)
	if err != nil {
		return nil, err
	}
	if o.Slow == 0 {
		o.Slow = DefaultSlow
	}
	if o.Limit == 0 {
		o.Limit = Limit
	}
	r := &run{definition: d.CustomResourceDefinition, validator: validator, endpoint: e, options: o,
		report: &Report{Definition: d.Name, Webhook: e.URL, Objects: len(objects), Calls: []Call{}, Problems: []Problem{}}}
	samples, err := r.samples(objects)
	if err != nil {
		return nil, err
	}
	for _, review := range r.reviews() {
		for _, v := range d.Spec.Versions {
			if v.Served || v.Storage {
				r.both(ctx, review, samples, v.Name)
			}
		}
		if ctx.Err() != nil {
			return r.report, ctx.Err()
		}
	}
	return r.report, nil
}

// reviews are the versions of ConversionReview to test: those that API servers know.
func (r *run) reviews() (known []string) {
	if c := r.definition.Spec.Conversion; c != nil && c.Webhook != nil {
		for _, v := range c.Webhook.ConversionReviewVersions {
			if (v == "v1" || v == "v1beta1") && !slices.Contains(known, v) {
				known = append(known, v)
			}
		}
	}
	if len(known) == 0 {
		return []string{"v1"}
	}
	return known
}

// samples prepares the objects as the API server holds them.
func (r *run) samples(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for i, u := range objects {
		kind := u.GroupVersionKind()
		if kind.Group != r.definition.Spec.Group || kind.Kind != r.definition.Spec.Names.Kind || crd.Version(r.definition, kind.Version) == nil {
			return nil, fmt.Errorf("object %s %q is not of a version of %s", kind, u.GetName(), r.definition.Name)
		}
		prepared, err := r.validator.Prune(u)
		if err != nil {
			return nil, fmt.Errorf("object %s %q: %w", kind, u.GetName(), err)
		}
		all = append(all, identified(prepared, i))
	}
	for i, v := range r.definition.Spec.Versions {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(r.definition.Spec.Group + "/" + v.Name)
		u.SetKind(r.definition.Spec.Names.Kind)
		u.SetName("only-metadata-" + v.Name)
		all = append(all, identified(u, len(objects)+i))
	}
	return all, nil
}

// both converts all samples to a version and back.
func (r *run) both(ctx context.Context, review string, samples []*unstructured.Unstructured, to string) {
	var there []*unstructured.Unstructured
	for _, s := range samples {
		if s.GroupVersionKind().Version != to {
			there = append(there, s)
		}
	}
	converted := r.convert(ctx, review, there, to)
	byVersion := map[string][]pair{}
	for i, c := range converted {
		if c == nil {
			continue
		}
		from := there[i].GroupVersionKind().Version
		byVersion[from] = append(byVersion[from], pair{there[i], c})
	}
	for _, v := range r.definition.Spec.Versions {
		pairs := byVersion[v.Name]
		if len(pairs) == 0 {
			continue
		}
		var back []*unstructured.Unstructured
		for _, p := range pairs {
			back = append(back, p.converted)
		}
		for i, b := range r.convert(ctx, review, back, v.Name) {
			if b != nil {
				r.compare(pairs[i].original, b, to)
			}
		}
	}
}

type pair struct{ original, converted *unstructured.Unstructured }

// convert returns the converted objects as the API server would use them, nil for those
// that fail. If a request fails, each object gets one of its own.
func (r *run) convert(ctx context.Context, review string, objects []*unstructured.Unstructured, to string) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	if len(objects) == 0 {
		return out
	}
	answers, err := r.call(ctx, review, objects, to)
	if err == nil {
		for i, a := range answers {
			out[i] = r.accept(objects[i], a, to)
		}
		return out
	}
	if len(objects) == 1 || ctx.Err() != nil {
		r.problem(Error, "failed", objects[0], to, "", "%v", err)
		return out
	}
	failed := 0
	for i, o := range objects {
		answers, single := r.call(ctx, review, []*unstructured.Unstructured{o}, to)
		if single != nil {
			failed++
			r.problem(Error, "failed", o, to, "", "%v", single)
			continue
		}
		out[i] = r.accept(o, answers[0], to)
	}
	if failed == 0 {
		r.problem(Error, "list-failed", nil, to, "", "a request with %d objects fails, although each of them alone is converted: %v", len(objects), err)
	} else if failed < len(objects) {
		r.problem(Error, "list-failed", nil, to, "", "%d of %d objects fail, and with them every list that has one", failed, len(objects))
	}
	return out
}

// accept does what the API server does with a converted object: it judges, restores
// metadata and prunes.
func (r *run) accept(in *unstructured.Unstructured, answer any, to string) *unstructured.Unstructured {
	u, problems := judge(in, answer, r.definition.Spec.Group+"/"+to)
	usable := true
	for _, p := range problems {
		r.problem(p.Level, p.Rule, in, to, p.Field, "%s", p.Message)
		usable = usable && p.Level != Error
	}
	if !usable {
		return nil
	}
	restore(in, u)
	pruned, err := r.validator.Prune(u)
	if err != nil {
		r.problem(Error, "metadata", in, to, "metadata", "%v", err)
		return nil
	}
	for _, d := range diff(u.Object, pruned.Object) {
		r.problem(Error, "undeclared", in, to, d.path, "the webhook returns a field that version %s does not declare: it is removed", to)
	}
	return pruned
}

// compare reports what a conversion to a version and back changes.
func (r *run) compare(original, back *unstructured.Unstructured, by string) {
	for _, d := range diff(original.Object, back.Object) {
		rule := map[kind]string{lost: "lost", changed: "changed", added: "added"}[d.kind]
		level := Error
		if d.kind == added {
			level = Warning // often a default
		}
		r.problem(level, rule, original, by, d.path, "%s", d.text(by))
	}
}

func (r *run) problem(level Level, rule string, u *unstructured.Unstructured, to, field, format string, args ...any) {
	p := Problem{Level: level, Rule: rule, To: to, Field: field, Message: fmt.Sprintf(format, args...)}
	if u != nil {
		p.Object, p.From = u.GetName(), u.GroupVersionKind().Version
	}
	if !slices.Contains(r.report.Problems, p) {
		r.report.Problems = append(r.report.Problems, p)
	}
}
