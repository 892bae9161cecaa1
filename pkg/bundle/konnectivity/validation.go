package konnectivity

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Validate checks what needs rendered flags or files.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	return nil
}
