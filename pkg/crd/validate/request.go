// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/warning"
)

// Options of a request.
type Options struct {
	// Namespace is that of the request; "" takes the object's, or "default".
	Namespace string
	// FieldValidation is Strict, Warn or Ignore; "" is Warn, the API server's default.
	FieldValidation string
}

// Result is the API server's answer.
type Result struct {
	// Err is a *StatusError that carries the answer of a refusal, with a cause for each
	// field; nil if the object is accepted.
	Err error
	// Warnings are those of the response's headers.
	Warnings []string
	// Stored is what is written to storage, in the storage version unless a webhook
	// converts.
	Stored *unstructured.Unstructured
	// Returned is the body of the response, in the version of the request.
	Returned *unstructured.Unstructured
}

// Status is the body of a refusal, or nil.
func (r *Result) Status() *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(r.Err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}

// recorder collects warnings as the response's headers do: each once.
type recorder struct {
	lock sync.Mutex
	all  []string
}

func (r *recorder) AddWarning(_, text string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if !slices.Contains(r.all, text) {
		r.all = append(r.all, text)
	}
}

// Create answers to a POST.
func (v *Validator) Create(ctx context.Context, data []byte, o Options) *Result {
	return v.request(ctx, data, o, func(ctx context.Context, version *version, u *unstructured.Unstructured) error {
		u.SetResourceVersion("")
		rest.FillObjectMetaSystemFields(u)
		if u.GetName() == "" && u.GetGenerateName() != "" {
			u.SetName(names.SimpleNameGenerator.GenerateName(u.GetGenerateName()))
		}
		u.SetDeletionTimestamp(nil)
		u.SetDeletionGracePeriodSeconds(nil)
		return rest.BeforeCreate(version.main, ctx, u)
	})
}

// Update answers to a PUT that replaces an object. What the API server sets on objects may
// be missing in both.
func (v *Validator) Update(ctx context.Context, data, old []byte, o Options) *Result {
	return v.replace(ctx, data, old, o, func(version *version) (rest.RESTUpdateStrategy, error) { return version.main, nil })
}

// UpdateStatus answers to a PUT to the status subresource.
func (v *Validator) UpdateStatus(ctx context.Context, data, old []byte, o Options) *Result {
	return v.replace(ctx, data, old, o, func(version *version) (rest.RESTUpdateStrategy, error) {
		if version.status == nil {
			return nil, notFound(v.definition, version.name+" has no status subresource")
		}
		return version.status, nil
	})
}

func (v *Validator) replace(ctx context.Context, data, old []byte, o Options, choose func(*version) (rest.RESTUpdateStrategy, error)) *Result {
	return v.request(ctx, data, o, func(ctx context.Context, version *version, u *unstructured.Unstructured) error {
		strategy, err := choose(version)
		if err != nil {
			return err
		}
		before, err := v.existing(ctx, old, version)
		if err != nil {
			return err
		}
		if u.GetName() != before.GetName() {
			return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match that of the old object (%s)", u.GetName(), before.GetName()))
		}
		if u.GetResourceVersion() == "" {
			u.SetResourceVersion(before.GetResourceVersion())
		}
		if u.GetResourceVersion() != before.GetResourceVersion() {
			return apierrors.NewConflict(apiextensionsv1.Resource(v.definition.Spec.Names.Plural), u.GetName(),
				errors.New("the object has been modified; please apply your changes to the latest version and try again"))
		}
		return rest.BeforeUpdate(strategy, ctx, u, before)
	})
}

// existing reads the old object as one that is stored, in the version of the request.
func (v *Validator) existing(ctx context.Context, old []byte, to *version) (*unstructured.Unstructured, error) {
	u, _, err := parse(old)
	if err != nil {
		return nil, fmt.Errorf("old object: %w", err)
	}
	from, err := v.version(u, true)
	if err != nil {
		return nil, fmt.Errorf("old object: %w", err)
	}
	if !v.convertible(from.name, to.name) {
		return nil, fmt.Errorf("old object: it is of version %s, and a webhook converts it to %s: give it in version %s", from.name, to.name, to.name)
	}
	if u.GetResourceVersion() == "" {
		u.SetResourceVersion("1")
	}
	if u.GetNamespace() == "" && to.main.NamespaceScoped() {
		u.SetNamespace(request.NamespaceValue(ctx))
	}
	if u.GetUID() == "" {
		rest.FillObjectMetaSystemFields(u)
	}
	return v.read(u, to.name)
}

// request does what all writes have in common.
func (v *Validator) request(ctx context.Context, data []byte, o Options, write func(context.Context, *version, *unstructured.Unstructured) error) *Result {
	warnings := &recorder{}
	ctx = warning.WithWarningRecorder(ctx, warnings)
	result := &Result{}
	result.Stored, result.Returned, result.Err = v.answer(ctx, data, o, write)
	result.Warnings = warnings.all
	return result
}

func (v *Validator) answer(ctx context.Context, data []byte, o Options, write func(context.Context, *version, *unstructured.Unstructured) error) (stored, returned *unstructured.Unstructured, err error) {
	u, twice, err := parse(data)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	version, err := v.version(u, false)
	if err != nil {
		return nil, nil, err
	}
	if text := deprecation(v.definition, version.name); text != "" {
		warning.AddWarning(ctx, "", text)
	}
	unknown, err := version.decode(u)
	if err != nil {
		return nil, nil, err
	}
	if err := fieldValidation(ctx, o.FieldValidation, append(twice, unknown...)); err != nil {
		return nil, nil, err
	}
	ctx = request.WithNamespace(ctx, namespace(version, u, o))
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForScope(request.NamespaceValue(ctx), version.main.NamespaceScoped()), u); err != nil {
		return nil, nil, err
	}
	if err := write(ctx, version, u); err != nil {
		return nil, nil, err
	}
	return v.store(u)
}

func namespace(version *version, u *unstructured.Unstructured, o Options) string {
	switch {
	case !version.main.NamespaceScoped():
		return metav1.NamespaceNone
	case o.Namespace != "":
		return o.Namespace
	case u.GetNamespace() != "":
		return u.GetNamespace()
	}
	return metav1.NamespaceDefault
}

// fieldValidation treats unknown and repeated fields as the request asks for.
func fieldValidation(ctx context.Context, mode string, found []error) error {
	if len(found) == 0 {
		return nil
	}
	switch mode {
	case metav1.FieldValidationStrict:
		return apierrors.NewBadRequest(runtime.NewStrictDecodingError(found).Error())
	case metav1.FieldValidationIgnore:
	default:
		for _, f := range found {
			warning.AddWarning(ctx, "", f.Error())
		}
	}
	return nil
}

// version finds the version of an object, which must be served unless it is stored.
func (v *Validator) version(u *unstructured.Unstructured, stored bool) (*version, error) {
	kind, spec := u.GroupVersionKind(), v.definition.Spec
	if kind.Group == spec.Group && kind.Kind != spec.Names.Kind {
		return nil, apierrors.NewInvalid(kind.GroupKind(), u.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+spec.Names.Kind)})
	}
	if kind.Group != spec.Group {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is of kind %s in group %q, the definition %s of kind %s in group %q",
			kind.Kind, kind.Group, v.definition.Name, spec.Names.Kind, spec.Group))
	}
	found := v.versions[kind.Version]
	if found == nil || (!found.served && !stored) {
		return nil, notFound(v.definition, "version "+kind.Version+" is not served; served are "+strings.Join(served(spec), ", "))
	}
	return found, nil
}

func served(spec apiextensionsv1.CustomResourceDefinitionSpec) (all []string) {
	for _, v := range spec.Versions {
		if v.Served {
			all = append(all, v.Name)
		}
	}
	return all
}

// notFound is what the API server says about paths that it does not serve.
func notFound(d *apiextensionsv1.CustomResourceDefinition, why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the server could not find the requested resource: %s: %s", d.Name, why)}}
}

// deprecation is the warning of a deprecated version.
func deprecation(d *apiextensionsv1.CustomResourceDefinition, name string) string {
	var better []string
	var deprecated *apiextensionsv1.CustomResourceDefinitionVersion
	for i, v := range d.Spec.Versions {
		if v.Name == name && v.Deprecated {
			deprecated = &d.Spec.Versions[i]
		}
		if v.Served && !v.Deprecated && apimachineryversion.CompareKubeAwareVersionStrings(name, v.Name) < 0 {
			better = append(better, v.Name)
		}
	}
	if deprecated == nil {
		return ""
	}
	if deprecated.DeprecationWarning != nil {
		return *deprecated.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, name, d.Spec.Names.Kind)
	if len(better) > 0 {
		text += fmt.Sprintf("; use %s/%s %s", d.Spec.Group, slices.MaxFunc(better, apimachineryversion.CompareKubeAwareVersionStrings), d.Spec.Names.Kind)
	}
	return text
}
