package main

import (
	"bytes"
	"fmt"
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
}

// values writes values.yaml with the bundle's defaults.
func values() ([]byte, error) {
	b := (&v1alpha1.Bundle{}).Defaulted()
	s, k, a := &b.Scheduler, &b.Konnectivity, &b.Konnectivity.Agent
	var out bytes.Buffer
	out.WriteString(`# All fields of a bundle: "fairlead install -f bundle.yaml". Here are those that most
# people change. The namespace is the release's: kube-system, if you have no reason.
# Helm adds your maps to these, and null removes a key of them.
`)
	for _, v := range []value{
		{0, "scheduler", "The second scheduler.", nil},
		{1, "enabled", "", true},
		{1, "image", "Must hold /usr/local/bin/kube-scheduler.", s.Image},
		{1, "replicas", "One leads, the others stand by.", s.Replicas},
		{1, "resources", "", s.Resources},
		{1, "nodeSelector", "", map[string]string{}},
		{1, "tolerations", "", s.Tolerations},
		{0, "konnectivity", "The tunnel from the API server to the nodes.", nil},
		{1, "enabled", "", true},
		{1, "serverHost", "What agents dial. Empty: a headless Service that selects the server Pods.", ""},
		{1, "leaseCounting", "Let agents count servers by their Leases; for several control plane nodes.", *k.LeaseCounting},
		{1, "agent", "", nil},
		{2, "image", "Must hold /proxy-agent.", a.Image},
		{2, "resources", "", a.Resources},
		{2, "nodeSelector", "", map[string]string{}},
		{2, "tolerations", "Add {operator: Exists} to have agents on tainted nodes too.", a.Tolerations},
	} {
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
