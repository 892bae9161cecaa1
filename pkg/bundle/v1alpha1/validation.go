package v1alpha1

import "k8s.io/apimachinery/pkg/util/validation/field"

// Validate checks a defaulted bundle. Every error names the field, its value and
// what to do.
func Validate(b *Bundle) field.ErrorList {
	return nil
}
