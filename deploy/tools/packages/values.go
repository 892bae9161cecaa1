package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// value is one of the chart's values; those without a default are sections.
type value struct {
	depth   int
	name    string
	comment string
	value   any
	// schema is what a value of it must be like.
	schema map[string]any
}

// required tells whether there is nothing that a release could do without the value:
// null must not take it away. The others are empty then.
func (v value) required() bool {
	return v.value == nil || slices.Contains([]string{"enabled", "image", "replicas"}, v.name)
}

// allValues are the chart's values, with the bundle's defaults.
func allValues() []value {
	b := (&v1alpha1.Bundle{}).Defaulted()
	s, k, a := &b.Scheduler, &b.Konnectivity, &b.Konnectivity.Agent
	return []value{
		{0, "scheduler", "The second scheduler.", nil, nil},
		{1, "enabled", "", true, boolean},
		{1, "image", "Must hold /usr/local/bin/kube-scheduler. One called fairlead-scheduler gets Fairlead's plugins, others the default ones.", s.Image, image},
		{1, "replicas", "One leads, the others stand by.", s.Replicas, replicas},
		{1, "resources", "", s.Resources, resources},
		{1, "nodeSelector", "", map[string]string{}, labels},
		{1, "tolerations", "", s.Tolerations, tolerations},
		{0, "konnectivity", "The tunnel from the API server to the nodes.", nil, nil},
		{1, "enabled", "", true, boolean},
		{1, "serverHost", "What agents dial. Empty: a headless Service that selects the server Pods.", "", host},
		{1, "leaseCounting", "Let agents count servers by their Leases; for several control plane nodes.", *k.LeaseCounting, boolean},
		{1, "agent", "", nil, nil},
		{2, "image", "Must hold /proxy-agent.", a.Image, image},
		{2, "resources", "", a.Resources, resources},
		{2, "nodeSelector", "", map[string]string{}, labels},
		{2, "tolerations", "Add {operator: Exists} to have agents on tainted nodes too.", a.Tolerations, tolerations},
	}
}

// values writes values.yaml.
func values() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(`# All fields of a bundle: "fairlead install -f bundle.yaml". Here are those that most
# people change. The namespace is the release's: kube-system, if you have no reason.
# Helm adds your maps to these, and null removes a key of them; a value that is null is
# empty, or refused where there must be one.
`)
	for _, v := range allValues() {
		if err := v.write(&out); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func (v value) write(out *bytes.Buffer) error {
	indent := strings.Repeat("  ", v.depth)
	if v.depth == 0 {
		out.WriteString("\n")
	}
	if v.comment != "" {
		fmt.Fprintf(out, "%s# %s\n", indent, v.comment)
	}
	if v.value == nil {
		fmt.Fprintf(out, "%s%s:\n", indent, v.name)
		return nil
	}
	data, err := yaml.Marshal(map[string]any{v.name: v.value})
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		out.WriteString(indent + line)
	}
	return nil
}
