// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// strategy is the API server's code for requests that write definitions.
var strategy = customresourcedefinition.NewStrategy(crd.Scheme)

// create says what the API server says when the definition is created.
func create(ctx context.Context, d *crd.Definition) ([]Finding, error) {
	internal, err := crd.Internal(d.CustomResourceDefinition)
	if err != nil {
		return nil, err
	}
	strategy.PrepareForCreate(ctx, internal)
	findings := append(unknown(d), refused(d, strategy.Validate(ctx, internal))...)
	return append(findings, warned(d, strategy.WarningsOnCreate(ctx, internal))...), nil
}

// update says what the API server says when the definition replaces an older one.
func update(ctx context.Context, d, old *crd.Definition) ([]Finding, error) {
	internal, err := crd.Internal(d.CustomResourceDefinition)
	if err != nil {
		return nil, err
	}
	internalOld, err := crd.Internal(old.CustomResourceDefinition)
	if err != nil {
		return nil, err
	}
	asStored(internal, internalOld)
	strategy.PrepareForUpdate(ctx, internal, internalOld)
	findings := append(unknown(d), refused(d, strategy.ValidateUpdate(ctx, internal, internalOld))...)
	return append(findings, warned(d, strategy.WarningsOnUpdate(ctx, internal, internalOld))...), nil
}

// asStored fills in what the API server sets, because files often lack it: the old
// definition is taken as established.
func asStored(d, old *apiextensions.CustomResourceDefinition) {
	const version = "1"
	old.ResourceVersion, d.ResourceVersion = version, version
	d.UID, d.CreationTimestamp, d.Generation = old.UID, old.CreationTimestamp, old.Generation
	d.DeletionTimestamp, d.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	if len(old.Status.Conditions) == 0 {
		old.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.Established, Status: apiextensions.ConditionTrue}}
	}
}

func unknown(d *crd.Definition) (findings []Finding) {
	for _, err := range d.Unknown {
		message := err.Error()
		f := Finding{Level: Error, Rule: "unknown-field", Message: message}
		if path := quoted(message); path != "" {
			f.Field = path
		}
		findings = append(findings, at(d, f))
	}
	return findings
}

// quoted returns the text between the first two quotes.
func quoted(message string) string {
	var from int
	for i, c := range message {
		if c != '"' {
			continue
		}
		if from > 0 {
			return message[from:i]
		}
		from = i + 1
	}
	return ""
}

func refused(d *crd.Definition, errs field.ErrorList) (findings []Finding) {
	for _, err := range errs {
		message := text(err)
		path := crd.PathInV1(err.Field)
		rule := ruleOf(path, message)
		findings = append(findings, at(d, Finding{Level: Error, Rule: rule, Field: path, Message: message, Remedy: remedyOf(rule, message), server: true}))
	}
	return findings
}

// text is the API server's message, without values that would fill the screen.
func text(err *field.Error) string {
	switch err.BadValue.(type) {
	case nil, string, bool, int, int32, int64, float64:
		return err.ErrorBody()
	}
	if err.Detail == "" {
		return err.Type.String()
	}
	return err.Type.String() + ": " + err.Detail
}

func warned(d *crd.Definition, warnings []string) (findings []Finding) {
	for _, w := range warnings {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "format-unknown", Message: w}))
	}
	return findings
}
