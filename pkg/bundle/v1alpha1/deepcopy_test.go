// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// TestDeepCopy fills every field and looks for memory that copy and original
// share.
func TestDeepCopy(t *testing.T) {
	fill := randfill.New().NilChance(0).NumElements(1, 2).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) { *q = resource.MustParse("1") },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte("{}") },
	)
	var b Bundle
	fill.Fill(&b)
	c := b.DeepCopy()
	if diff := cmp.Diff(&b, c); diff != "" {
		t.Fatalf("copy differs:\n%s", diff)
	}
	pointers := map[uintptr]string{}
	walk(reflect.ValueOf(&b).Elem(), "", func(p uintptr, path string) { pointers[p] = path })
	if len(pointers) < 50 {
		t.Fatalf("only %d references were filled", len(pointers))
	}
	walk(reflect.ValueOf(c).Elem(), "", func(p uintptr, path string) {
		if _, shared := pointers[p]; shared {
			t.Errorf("%s is shared with the original", path)
		}
	})
	if (*Bundle)(nil).DeepCopy() != nil {
		t.Error("the copy of nil is not nil")
	}
}

// walk visits all references that are not empty, below exported fields.
func walk(v reflect.Value, path string, visit func(uintptr, string)) {
	switch v.Kind() {
	case reflect.Pointer:
		// Pointers to nothing and to quantities, whose inside is immutable, may be
		// shared.
		if !v.IsNil() && v.Type().Elem().Size() > 0 {
			visit(v.Pointer(), path)
			walk(v.Elem(), path, visit)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			visit(v.Pointer(), path)
		}
		for i := range v.Len() {
			walk(v.Index(i), path+"[]", visit)
		}
	case reflect.Map:
		if v.Len() > 0 {
			visit(v.Pointer(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
			}
		}
	}
}
