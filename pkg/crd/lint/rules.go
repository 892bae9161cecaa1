// SPDX-License-Identifier: Apache-2.0

package lint

import "strings"

// Rules are the names of all rules, with the general remedy.
var Rules = map[string]string{
	// what the API server refuses
	"unreadable":       "write valid YAML or JSON of kind CustomResourceDefinition, apiVersion apiextensions.k8s.io/v1",
	"unknown-field":    "remove the field, or correct its spelling: the API server drops it, and refuses it under strict validation",
	"structural":       "give each node a type, and declare each field outside of allOf, anyOf, oneOf and not as well",
	"schema":           "use only the keywords and values that a v1 schema may have",
	"default":          "make the default a value that the schema of its field accepts, without fields that the schema does not declare",
	"cel-compile":      "correct the expression: it sees only declared fields, as self, with the types of the schema",
	"cel-cost":         "set maxItems, maxProperties and maxLength on everything that the rule walks, or simplify the rule",
	"cel-transition":   "make each list around the rule x-kubernetes-list-type: map, or move the rule to a node above the list",
	"cel-rule":         "correct the rule's settings",
	"printer-column":   "give the column a name, a supported type and a jsonPath that begins with a dot",
	"selectable-field": "select at most 8 declared fields of type string, boolean or integer, without arrays and outside of metadata",
	"subresource":      "use simple dot paths below .spec and .status, and only the root keywords that the status subresource permits",
	"conversion":       "set webhook only with strategy Webhook: exactly one of url and service, and conversionReviewVersions with v1",
	"names":            "make metadata.name PLURAL.GROUP, names lower case, kind CamelCase, and the group a domain name",
	"names-conflict":   "give each definition of a group its own plural, singular, short names, kind and list kind",
	"api-approval":     "use a group of your own domain; groups below k8s.io and kubernetes.io need the annotation api-approved.kubernetes.io",
	"versions":         "list each version once, with exactly one storage version and a schema for each",
	"stored-versions":  `keep the version, migrate the stored objects with "fairlead crd migrate", and only then drop it`,
	"deprecation":      "set deprecationWarning only with deprecated: true, to at most 256 printable characters",
	"immutable":        "keep the value, or create a definition of another name and move the objects",
	"metadata":         "correct the metadata of the definition",
	"invalid":          "correct the field",

	// what the API server accepts
	"format-unknown":      "use a format that the API server checks, or a pattern",
	"required-undeclared": "declare the field under properties: undeclared fields are removed before required fields are checked",
	"column-path":         "point the column at a declared field",
	"column-type":         "give the column the type of its field; otherwise the cell stays empty",
	"column-name":         "drop the column: the first column is always the name",
	"scale-path":          "declare the field of the path with type integer (labelSelectorPath: string)",
	"status-subresource":  "add subresources.status: {}, so that only controllers write the status",
	"conversion-none":     "use strategy Webhook, or give all versions the same fields with the same types",
	"conversion-ca":       "set caBundle to the CA of the webhook's certificate, in PEM",
	"conversion-key":      "remove the key from caBundle, and replace it: take it as known to others",
	"conversion-url":      "use clientConfig.service for a webhook in the cluster",
	"not-stored":          "remove the field: tools that compare the manifest with the cluster, such as GitOps, always show a difference",
	"no-value":            "correct the limits: the API server refuses every value of the field",
	"conversion-review":   "list v1 first in conversionReviewVersions",
	"preferred-version":   "make the version that discovery prefers the storage version as soon as all clients can read it",
	"no-served-version":   "set served: true on at least one version",
	"selectable-versions": "declare the selectable field in each served version",
	"size-apply":          "shorten descriptions, or apply the definition with kubectl apply --server-side",
	"size-storage":        "split or shorten the schema: etcd refuses objects of more than 1.5 MiB",
	"cel-cost-near":       "set tighter maxItems, maxProperties and maxLength before the rule grows",

	// changes
	"name-changed":        "keep the name; under another name the API server makes a second definition without objects",
	"scope-changed":       "keep the scope, or create a definition of another name and move the objects",
	"version-removed":     "keep the version with served: true and deprecated: true until no client asks for it",
	"version-unserved":    "look in the API server's audit log for clients of the version first",
	"storage-changed":     `run "fairlead crd migrate" after the change, so that the old version leaves status.storedVersions`,
	"conversion-dropped":  "keep spec.conversion in the manifest: without it, the strategy becomes None",
	"conversion-added":    "start the webhook before you apply the change",
	"field-removed":       "keep the field, or migrate its data to another field first: the API server removes it at the next write of an object",
	"unknown-fields":      "keep x-kubernetes-preserve-unknown-fields: without it, the API server removes undeclared data at the next write",
	"type-changed":        "add a field of another name, or a version with a conversion webhook",
	"tightened":           "add the constraint in a new version, or as a rule with oldSelf and optionalOldSelf: true for new objects only",
	"constraint-changed":  "compare by hand which values the constraint permits before and after",
	"required-added":      "give the field a default, or make it optional",
	"default-changed":     "keep the default: stored objects without the field change their meaning when they are read",
	"nullable-removed":    "keep nullable: true: the API server drops stored nulls",
	"list-type-changed":   "keep the list type and map keys: server-side apply tracks items by them",
	"combination-changed": "compare by hand what allOf, anyOf, oneOf and not accept before and after",
	"cel-added":           "make sure that existing objects pass the rule; an unchanged part of an object is not checked again, except by transition rules",
	"subresource-changed": "update the clients that use the subresource first",
	"column-removed":      "tell users of the column",
	"selectable-removed":  "update the clients that select by the field first; their lists and watches fail",
}

// fragments classify messages of the API server, by a part of the message.
var fragments = []struct{ text, rule string }{
	{"cost exceeds budget", "cel-cost"},
	{"exceeding cost limit", "cel-cost"},
	{"cost total", "cel-cost"},
	{"uncorrelatable portion", "cel-transition"},
	{"compilation failed", "cel-compile"},
	{"undefined field", "cel-compile"},
	{"must evaluate to a", "cel-compile"},
	{"to be structural", "structural"},
	{"must not be empty at the root", "structural"},
	{"must not be empty for specified", "structural"},
	{"must only have", "structural"},
	{"field is immutable", "immutable"},
	{"api-approved.kubernetes.io", "api-approval"},
	{"missing from spec.versions", "stored-versions"},
}

// places classify messages of the API server by a part of the field's path.
var places = []struct{ part, rule string }{
	{"x-kubernetes-validations", "cel-rule"},
	{".default", "default"},
	{"additionalPrinterColumns", "printer-column"},
	{"selectableFields", "selectable-field"},
	{"subresources", "subresource"},
	{"openAPIV3Schema", "schema"},
	{".schema", "schema"},
	{"spec.conversion", "conversion"},
	{"deprecationWarning", "deprecation"},
	{"status.storedVersions", "stored-versions"},
	{"spec.names", "names"},
	{"spec.group", "names"},
	{"spec.scope", "names"},
	{"metadata.name", "names"},
	{"spec.version", "versions"},
	{"metadata.annotations", "metadata"},
	{"metadata", "metadata"},
}

// ruleOf classifies an error of the API server's validation.
func ruleOf(path, message string) string {
	for _, f := range fragments {
		if strings.Contains(message, f.text) {
			return f.rule
		}
	}
	for _, p := range places {
		if strings.Contains(path, p.part) {
			return p.rule
		}
	}
	return "invalid"
}

// remedies are more exact than those of the rules, by a part of the message.
var remedies = []struct{ text, remedy string }{
	{"must be spec.names.plural+", "rename the definition: metadata.name is spec.names.plural, a dot and spec.group"},
	{"must have exactly one version marked as storage version", "set storage: true on one version and storage: false on the others"},
	{"schemas are required", "add schema.openAPIV3Schema to the version"},
	{"must be object if x-kubernetes-embedded-resource is true", "add type: object to the embedded resource"},
	{"must not be empty at the root", "add type: object at the root of the schema"},
	{"must not have unknown fields", "remove the fields of the default that the schema does not declare"},
	{"entries must all be names of item properties", "declare each list map key under items.properties"},
	{"should be a domain with at least one dot", "use a group such as stable.example.com"},
	{"cannot be set to true", "use x-kubernetes-preserve-unknown-fields: true on the node that holds unknown data"},
	{"may not be set if oldSelf is not used in rule", "remove optionalOldSelf, or use oldSelf in the rule"},
	{"found no matching overload", "compare values of the same type; see the type of the field in the schema"},
	{"undefined field", "declare the field in the schema; CEL sees no undeclared and no preserved fields"},
	{"must contain at least one of", "list v1 in conversionReviewVersions"},
	{"exactly one of url or service is required", "set either clientConfig.url or clientConfig.service"},
}

func remedyOf(rule, message string) string {
	for _, r := range remedies {
		if strings.Contains(message, r.text) {
			return r.remedy
		}
	}
	return Rules[rule]
}
