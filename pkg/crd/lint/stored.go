// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// notStored finds what a manifest sets and the API server does not store. A definition that
// was read from a cluster has a UID, and a status that is no mistake.
func notStored(d *crd.Definition) (findings []Finding) {
	if d.Document == nil || d.Document.Object == nil || d.UID != "" {
		return nil
	}
	dropped := func(path, what string) {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "not-stored", Field: path, Message: "the API server does not store " + what}))
	}
	content := d.Document.Object.Object
	if _, ok := content["status"]; ok {
		dropped("status", "the status of a manifest")
	}
	spec, _, _ := unstructured.NestedMap(content, "spec")
	if keep, ok := spec["preserveUnknownFields"].(bool); ok && !keep {
		dropped("spec.preserveUnknownFields", "preserveUnknownFields: false, which is the default")
	}
	empty := func(in map[string]any, path *field.Path, name string) {
		if list, ok := in[name].([]any); ok && len(list) == 0 {
			dropped(path.Child(name).String(), "an empty list")
		}
	}
	names, _ := spec["names"].(map[string]any)
	for _, name := range []string{"categories", "shortNames"} {
		empty(names, field.NewPath("spec", "names"), name)
	}
	versions, _ := spec["versions"].([]any)
	for i, v := range versions {
		version, _ := v.(map[string]any)
		path := field.NewPath("spec", "versions").Index(i)
		for _, name := range []string{"additionalPrinterColumns", "selectableFields"} {
			empty(version, path, name)
		}
	}
	return findings
}

// unsatisfiable finds limits that no value meets.
func unsatisfiable(d *crd.Definition, root *props, path *field.Path) (findings []Finding) {
	walk(root, path, true, func(s *apiextensionsv1.JSONSchemaProps, p *field.Path, _ bool) {
		check := func(least, most string, none bool) {
			if none {
				findings = append(findings, at(d, Finding{Level: Error, Rule: "no-value", Field: p.Child(least).String(), Message: fmt.Sprintf("no value meets both %s and %s", least, most)}))
			}
		}
		over := func(least, most *int64) bool { return least != nil && most != nil && *least > *most }
		check("minLength", "maxLength", over(s.MinLength, s.MaxLength))
		check("minItems", "maxItems", over(s.MinItems, s.MaxItems))
		check("minProperties", "maxProperties", over(s.MinProperties, s.MaxProperties))
		least, most := bound(s, s.Minimum, s.ExclusiveMinimum, 1), bound(s, s.Maximum, s.ExclusiveMaximum, -1)
		check("minimum", "maximum", least.at > -most.at || least.at == -most.at && (least.open || most.open))
	})
	return findings
}

// hookURL finds hosts that API servers do not reach in general: they need not use the DNS
// of the cluster, and localhost is their own machine.
func hookURL(d *crd.Definition, address *string) []Finding {
	if address == nil {
		return nil
	}
	u, err := url.Parse(*address)
	if err != nil {
		return nil // the API server says so
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	var message string
	switch ip := net.ParseIP(host); {
	case host == "localhost" || ip.IsLoopback():
		message = "names the machine of each API server: the webhook must run next to all of them"
	case strings.HasSuffix(host, ".svc") || strings.Contains(host, ".svc."):
		message = "names a Service of the cluster, which API servers cannot look up in general"
	default:
		return nil
	}
	return []Finding{at(d, Finding{Level: Warning, Rule: "conversion-url", Field: "spec.conversion.webhook.clientConfig.url", Message: fmt.Sprintf("the host %s %s", host, message)})}
}
