// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// ValidateExtraArgs rejects arguments that set a flag of the bundle. owners maps
// each flag of the bundle to the field to set, or to the reason why it cannot be
// set. So ports or audiences that must be equal on two sides cannot differ.
func ValidateExtraArgs(args []v1alpha1.Argument, owners map[string]string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, a := range args {
		at := p.Index(i).Child("name")
		// Kubernetes' programs read --a_b as --a-b.
		name := strings.ReplaceAll(a.Name, "_", "-")
		switch owner, owned := owners[name]; {
		case name == "":
			errs = append(errs, field.Required(at, "give the flag's name without dashes"))
		case strings.HasPrefix(name, "-") || strings.ContainsAny(name, "= \t\n"):
			errs = append(errs, field.Invalid(at, a.Name, "must be the flag's name alone, without dashes, blanks or value"))
		case owned:
			errs = append(errs, field.Invalid(at, a.Name, fmt.Sprintf("is set by the bundle; %s", owner)))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, a.Name))
		}
		seen[name] = true
	}
	return errs
}

// SetField is the advice to set a field of the configuration.
func SetField(name string) string { return "set " + name + " instead" }
