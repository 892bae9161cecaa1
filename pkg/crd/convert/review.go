// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const reviewGroup = "apiextensions.k8s.io/"

// review is a ConversionReview of either version: v1 and v1beta1 have the same fields.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID     types.UID        `json:"uid"`
	Desired string           `json:"desiredAPIVersion"`
	Objects []map[string]any `json:"objects"`
}

type response struct {
	UID     types.UID     `json:"uid"`
	Objects []any         `json:"convertedObjects"`
	Result  metav1.Status `json:"result"`
}

// call sends one request. Its error is what the API server would say.
func (r *run) call(ctx context.Context, version string, objects []*unstructured.Unstructured, to string) ([]any, error) {
	in := review{APIVersion: reviewGroup + version, Kind: "ConversionReview", Request: &request{UID: uuid.NewUUID(), Desired: r.definition.Spec.Group + "/" + to}}
	for _, o := range objects {
		in.Request.Objects = append(in.Request.Objects, o.Object)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Limit)
	defer cancel()
	start := time.Now()
	answer, contentType, err := r.endpoint.post(ctx, body)
	took := time.Since(start)
	r.report.Calls = append(r.report.Calls, Call{Review: version, To: to, Objects: len(objects), Took: took})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer within %v, the API server's limit", r.options.Limit)
	}
	if err != nil {
		return nil, err
	}
	if took > r.options.Slow {
		r.problem(Warning, "slow", nil, to, "", "a call with %d objects took more than %v", len(objects), r.options.Slow)
	}
	if !strings.HasPrefix(contentType, "application/json") {
		r.problem(Warning, "content-type", nil, to, "", "the response has the content type %q: send application/json", contentType)
	}
	return judgeReview(in, answer)
}

// judgeReview checks the frame of a response as the API server does.
func judgeReview(in review, answer []byte) ([]any, error) {
	var out review
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, fmt.Errorf("the response is no ConversionReview: %w", err)
	}
	switch {
	case out.APIVersion != in.APIVersion || out.Kind != in.Kind:
		return nil, fmt.Errorf("the response is of %s %s, not of %s %s", out.APIVersion, out.Kind, in.APIVersion, in.Kind)
	case out.Response == nil:
		return nil, errors.New("the ConversionReview has no response")
	case out.Response.UID != in.Request.UID:
		return nil, fmt.Errorf("response.uid is %q, not the request's %q: copy it", out.Response.UID, in.Request.UID)
	case out.Response.Result.Status != metav1.StatusSuccess && out.Response.Result.Message != "":
		return nil, errors.New(out.Response.Result.Message)
	case out.Response.Result.Status != metav1.StatusSuccess:
		return nil, fmt.Errorf("response.result.status is %q, not Success, and there is no response.result.message", out.Response.Result.Status)
	case len(out.Response.Objects) != len(in.Request.Objects):
		return nil, fmt.Errorf("the response has %d objects, the request %d: return all of them, in the same order", len(out.Response.Objects), len(in.Request.Objects))
	}
	return out.Response.Objects, nil
}

// judge checks one converted object as the API server does, and reports what it repairs.
func judge(in *unstructured.Unstructured, answer any, apiVersion string) (*unstructured.Unstructured, []Problem) {
	object, ok := answer.(map[string]any)
	if !ok {
		return nil, []Problem{{Level: Error, Rule: "object", Message: "the converted object is not a map of fields"}}
	}
	u := normal(object)
	var problems []Problem
	same := func(field, want, got string) {
		if want != got {
			problems = append(problems, Problem{Level: Error, Rule: "identity", Field: field, Message: fmt.Sprintf("%s is %q, not %q", field, got, want)})
		}
	}
	same("apiVersion", apiVersion, u.GetAPIVersion())
	same("kind", in.GetKind(), u.GetKind())
	meta, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return u, append(problems, Problem{Level: Error, Rule: "metadata", Field: "metadata", Message: "the converted object has no metadata"})
	}
	same("metadata.name", in.GetName(), u.GetName())
	same("metadata.namespace", in.GetNamespace(), u.GetNamespace())
	same("metadata.uid", string(in.GetUID()), string(u.GetUID()))
	return u, append(append(problems, texts(meta)...), ignored(in, meta)...)
}

// texts checks labels and annotations, the only metadata that a webhook may change.
func texts(meta map[string]any) (problems []Problem) {
	for _, name := range []string{"labels", "annotations"} {
		values, ok := meta[name].(map[string]any)
		if !ok {
			if meta[name] != nil {
				problems = append(problems, Problem{Level: Error, Rule: "metadata", Field: "metadata." + name, Message: name + " are not a map"})
			}
			continue
		}
		all := map[string]string{}
		for k, v := range values {
			s, ok := v.(string)
			if !ok {
				problems = append(problems, Problem{Level: Error, Rule: "metadata", Field: "metadata." + name, Message: fmt.Sprintf("the value of %q is not a string", k)})
			}
			all[k] = s
		}
		path := field.NewPath("metadata", name)
		errs := metav1validation.ValidateLabels(all, path)
		if name == "annotations" {
			errs = validation.ValidateAnnotations(all, path)
		}
		for _, err := range errs {
			problems = append(problems, Problem{Level: Error, Rule: "metadata", Field: err.Field, Message: err.ErrorBody()})
		}
	}
	return problems
}

// ignored lists changes of metadata that the API server undoes.
func ignored(in *unstructured.Unstructured, meta map[string]any) (problems []Problem) {
	before, _ := in.Object["metadata"].(map[string]any)
	skip := map[string]bool{"labels": true, "annotations": true, "name": true, "namespace": true, "uid": true}
	for _, d := range diff(before, meta) {
		if head, _, _ := strings.Cut(strings.SplitN(d.path, "[", 2)[0], "."); !skip[head] {
			problems = append(problems, Problem{Level: Warning, Rule: "metadata", Field: "metadata." + d.path, Message: "the webhook changes metadata other than labels and annotations: the API server ignores it"})
		}
	}
	return problems
}

// restore puts the metadata of the input back, except for labels and annotations.
func restore(in, out *unstructured.Unstructured) {
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	out.Object["metadata"] = runtime.DeepCopyJSONValue(in.Object["metadata"])
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
}

// identified gives an object what each stored object has.
func identified(u *unstructured.Unstructured, i int) *unstructured.Unstructured {
	out := u.DeepCopy()
	if out.GetName() == "" {
		out.SetName(fmt.Sprintf("sample-%d", i))
	}
	if out.GetUID() == "" {
		out.SetUID(uuid.NewUUID())
	}
	if out.GetResourceVersion() == "" {
		out.SetResourceVersion(fmt.Sprint(1000 + i))
	}
	if out.GetGeneration() == 0 {
		out.SetGeneration(1)
	}
	if out.GetCreationTimestamp().Time.IsZero() {
		out.SetCreationTimestamp(metav1.NewTime(time.Unix(1700000000, 0)))
	}
	return normal(out.Object)
}

// normal makes numbers those of decoded JSON, so that objects can be compared.
func normal(object map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &u.Object)
	}
	if err != nil {
		u.Object = object
	}
	u.Object = integers(u.Object).(map[string]any)
	return u
}

// integers turns whole numbers into int64, as the API server holds them.
func integers(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for k := range t {
			t[k] = integers(t[k])
		}
	case []any:
		for i := range t {
			t[i] = integers(t[i])
		}
	case float64:
		if t == float64(int64(t)) {
			return int64(t)
		}
	}
	return v
}
