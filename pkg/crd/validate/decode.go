// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// creator makes objects of any kind.
type creator struct{}

func (creator) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

var serializer = json.NewSerializerWithOptions(json.DefaultMetaFactory, creator{}, crdserverscheme.NewUnstructuredObjectTyper(), json.SerializerOptions{Yaml: true, Strict: true})

// parse reads an object. The second result lists fields that are given twice.
func parse(data []byte) (*unstructured.Unstructured, []error, error) {
	obj, _, err := serializer.Decode(data, nil, nil)
	var twice []error
	if strict, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		twice, err = strict.Errors(), nil
	}
	if err != nil {
		return nil, nil, err
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not one object", obj)
	}
	return u, twice, nil
}

// decode prunes an object and applies defaults, as for a request. It returns the fields
// that it removed.
func (v *version) decode(u *unstructured.Unstructured) ([]error, error) {
	paths, err := v.coerce(u, coercion{track: true})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	unknown := make([]error, 0, len(paths))
	for _, p := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", p))
	}
	defaulting.Default(u.UnstructuredContent(), v.structural)
	return unknown, nil
}

type coercion struct {
	// lenient drops malformed metadata, as for stored objects.
	lenient bool
	// track collects the paths of removed fields.
	track bool
}

// coerce removes what the schema does not declare, nulls that it does not permit, and
// unknown metadata, also in embedded objects.
func (v *version) coerce(u *unstructured.Unstructured, c coercion) ([]string, error) {
	s := v.structural
	kind, apiVersion := u.GetKind(), u.GetAPIVersion()
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{DropMalformedFields: c.lenient, ReturnUnknownFieldPaths: c.track})
	if err != nil {
		return nil, err
	}
	if !v.unpruned {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.track})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	}
	fieldErr, paths := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{DropInvalidFields: c.lenient, ReturnUnknownFieldPaths: c.track})
	if fieldErr != nil {
		return nil, fieldErr
	}
	if c.lenient && found && meta.Generation == 0 {
		meta.Generation = 1
	}
	u.SetKind(kind)
	u.SetAPIVersion(apiVersion)
	if found {
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	return append(unknown, paths...), nil
}
