// SPDX-License-Identifier: Apache-2.0

package validate

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// convertible reports whether objects can be converted here: a webhook is not called.
func (v *Validator) convertible(from, to string) bool {
	return from == to || v.definition.Spec.Conversion == nil || v.definition.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter
}

// convert does what strategy None does: it changes apiVersion, and what the other version
// does not declare is removed.
func (v *Validator) convert(u *unstructured.Unstructured, to string) (*unstructured.Unstructured, error) {
	out := u.DeepCopy()
	if out.GroupVersionKind().Version == to {
		return out, nil
	}
	out.SetAPIVersion(v.definition.Spec.Group + "/" + to)
	_, err := v.versions[to].coerce(out, coercion{})
	return out, err
}

// store returns what is written to storage, and what a read of it returns in the version
// of the request. A webhook is not called: then both are in the version of the request.
func (v *Validator) store(u *unstructured.Unstructured) (stored, returned *unstructured.Unstructured, err error) {
	request := u.GroupVersionKind().Version
	if !v.convertible(request, v.storage) {
		return u, u, nil
	}
	if stored, err = v.convert(u, v.storage); err != nil {
		return nil, nil, err
	}
	returned, err = v.read(stored, request)
	return stored, returned, err
}

// read returns a stored object in a version: pruned and with defaults of the version in
// which it is stored, converted, and pruned again.
func (v *Validator) read(stored *unstructured.Unstructured, to string) (*unstructured.Unstructured, error) {
	out, from := stored.DeepCopy(), v.versions[stored.GroupVersionKind().Version]
	if _, err := from.coerce(out, coercion{lenient: true}); err != nil {
		return nil, err
	}
	defaulting.Default(out.UnstructuredContent(), from.structural)
	return v.convert(out, to)
}

// Prune removes from an object what its version does not declare, as the API server does
// with an object that a webhook has converted.
func (v *Validator) Prune(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found, err := v.version(u, true)
	if err != nil {
		return nil, err
	}
	out := u.DeepCopy()
	_, err = found.coerce(out, coercion{})
	return out, err
}
