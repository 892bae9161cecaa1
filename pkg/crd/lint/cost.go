// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"math/bits"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// nearPercent of the limit is worth a warning: the next field that a rule walks may break
// the definition.
const nearPercent = 50

// costs finds rules whose estimated cost is near the API server's limit. The schema is one
// that the API server accepts.
func costs(d *crd.Definition, root *apiextensionsv1.JSONSchemaProps, path *field.Path) (findings []Finding) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, internal, nil); err != nil {
		return nil
	}
	eachRule(internal, path, validation.RootCELContext(internal), func(p *field.Path, cost uint64) {
		if cost > validation.StaticEstimatedCostLimit {
			return // the API server says so
		}
		percent := cost * 100 / validation.StaticEstimatedCostLimit
		if percent < nearPercent {
			return
		}
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "cel-cost-near", Field: p.String(),
			Message: fmt.Sprintf("the estimated cost is %d%% of the limit for one rule", percent)}))
	})
	return findings
}

// eachRule visits the rules of a schema with their estimated costs.
func eachRule(s *apiextensions.JSONSchemaProps, path *field.Path, c *validation.CELSchemaContext, visit func(*field.Path, uint64)) {
	if s == nil || c == nil {
		return
	}
	if len(s.XValidations) > 0 {
		info, err := c.TypeInfo()
		if err != nil || info == nil {
			return
		}
		results, err := cel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit, environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), cel.NewExpressionsEnvLoader())
		if err != nil {
			return
		}
		for i, r := range results {
			cardinality := r.MaxCardinality
			if c.MaxCardinality != nil {
				cardinality = *c.MaxCardinality
			}
			visit(path.Child("x-kubernetes-validations").Index(i).Child("rule"), times(r.MaxCost, cardinality))
		}
	}
	for name := range s.Properties {
		p := s.Properties[name]
		eachRule(&p, path.Child("properties").Key(name), c.ChildPropertyContext(&p, name), visit)
	}
	if s.AdditionalProperties != nil {
		eachRule(s.AdditionalProperties.Schema, path.Child("additionalProperties"), c.ChildAdditionalPropertiesContext(s.AdditionalProperties.Schema), visit)
	}
	if s.Items != nil {
		eachRule(s.Items.Schema, path.Child("items"), c.ChildItemsContext(s.Items.Schema), visit)
	}
}

func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return 1 << 62
}
