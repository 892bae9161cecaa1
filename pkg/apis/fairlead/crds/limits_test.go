// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
)

// nodes are the schemas of all fields below spec and status, by path. Items of a list are at [], values of a map at {}.
func nodes(v apiextensionsv1.CustomResourceDefinitionVersion) map[string]*apiextensionsv1.JSONSchemaProps {
	all := map[string]*apiextensionsv1.JSONSchemaProps{}
	var walk func(path string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		all[path] = s
		for name := range s.Properties {
			child := s.Properties[name]
			walk(path+"."+name, &child)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(path+"{}", s.AdditionalProperties.Schema)
		}
	}
	root := v.Schema.OpenAPIV3Schema
	for _, name := range []string{"spec", "status"} {
		child := root.Properties[name]
		walk(name, &child)
	}
	return all
}

// unbounded are fields without limits of ours: they are of types that Kubernetes defines, whose markers we cannot set.
var unbounded = []string{
	`\.resources\.(limits|requests|claims|claims\[\]\.(name|request))$`, // core/v1 ResourceRequirements
	`\.tolerations\[\]\.(effect|key|operator|value)$`,
	`\.partition\.taint\.(effect|key|value)$`,
	`Selector\.(matchLabels|matchLabels\{\}|matchExpressions|matchExpressions\[\]\..*)$`,
	`inpack\.resources\[\]\.name$`, // ResourceSpec of kube-scheduler's configuration
	`\.(nodeSelector|nodeLabels)\{\}$`,
}

// TestBounded: each string has a maximum length, each list a maximum of items and a list type, and each map a maximum of properties.
func TestBounded(t *testing.T) {
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, crd := range all {
		for _, v := range crd.Spec.Versions {
			for path, s := range nodes(v) {
				lacks := lacking(s)
				if len(lacks) == 0 {
					continue
				}
				i := slices.IndexFunc(unbounded, func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(path) })
				if i < 0 {
					t.Errorf("%s/%s: %s has no %s", crd.Name, v.Name, path, strings.Join(lacks, " and no "))
					continue
				}
				used[unbounded[i]] = true
			}
		}
	}
	for _, pattern := range unbounded {
		if !used[pattern] {
			t.Errorf("the exception %s is for no field: remove it", pattern)
		}
	}
}

func lacking(s *apiextensionsv1.JSONSchemaProps) (lacks []string) {
	if s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 && s.Format == "" {
		lacks = append(lacks, "maxLength")
	}
	if s.Type == "array" && s.MaxItems == nil {
		lacks = append(lacks, "maxItems")
	}
	if s.Type == "array" && s.XListType == nil && s.Items.Schema.XPreserveUnknownFields == nil {
		lacks = append(lacks, "x-kubernetes-list-type")
	}
	if s.AdditionalProperties != nil && s.MaxProperties == nil {
		lacks = append(lacks, "maxProperties")
	}
	return lacks
}

// moved are the fields of v1alpha1 that v1beta1 has elsewhere, with the same limits.
var moved = map[string]string{
	"spec.konnectivity.serverHost": "spec.konnectivity.serverAddresses[].host",
	"spec.konnectivity.agentPort":  "spec.konnectivity.serverAddresses[].port",
	"spec.serverHost":              "spec.serverAddresses[].host",
	"spec.agentPort":               "spec.serverAddresses[].port",
}

// other are the fields whose type differs between the versions. testRules of package webhook tries their limits.
var other = []string{
	`^spec\.scheduler\.leaderElection\.(leaseDuration|renewDeadline|retryPeriod)(Seconds)?$`,
	`^spec\.konnectivity\.server\.drainTimeout(Seconds)?$`,
	`^spec\.pki\.(validity|caValidity)(Seconds)?$`,
	`^spec\.(konnectivity\.)?serverAddresses(\[\])?$`,
	`^spec\.(konnectivity\.agent\.)?hostNetwork$`,
	`^spec\.(konnectivity\.agent\.)?identifiers(\[\](\.(type|value))?)?$`,
}

// TestSameLimits: fields that correspond have the same limits in both versions, so that an object that is valid in one is valid in the other.
func TestSameLimits(t *testing.T) {
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, crd := range all {
		if len(crd.Spec.Versions) == 1 {
			continue
		}
		limits := map[string]map[string]string{}
		for _, v := range crd.Spec.Versions {
			limits[v.Name] = map[string]string{}
			for path, s := range nodes(v) {
				limits[v.Name][path] = limitsOf(t, s)
			}
		}
		old, current := limits["v1alpha1"], limits["v1beta1"]
		for from, to := range moved {
			if limit, ok := old[from]; ok {
				used[from] = true
				delete(old, from)
				old[to] = limit
			}
		}
		for _, list := range []map[string]string{old, current} {
			maps.DeleteFunc(list, func(path, _ string) bool {
				i := slices.IndexFunc(other, func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(path) })
				if i >= 0 {
					used[other[i]] = true
				}
				return i >= 0
			})
		}
		if diff := cmp.Diff(old, current); diff != "" {
			t.Errorf("%s: limits (-v1alpha1 +v1beta1):\n%s", crd.Name, diff)
		}
	}
	for _, exception := range slices.Concat(other, slices.Collect(maps.Keys(moved))) {
		if !used[exception] {
			t.Errorf("the exception %s is for no field: remove it", exception)
		}
	}
}

// limitsOf is what a schema says of a value itself. That a field is required is said by its parent; which fields there are, by their paths.
func limitsOf(t *testing.T, s *apiextensionsv1.JSONSchemaProps) string {
	t.Helper()
	own := s.DeepCopy()
	own.Description, own.Properties, own.Items, own.AdditionalProperties = "", nil, nil, nil
	text, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
