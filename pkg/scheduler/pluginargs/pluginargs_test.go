// SPDX-License-Identifier: Apache-2.0

package pluginargs_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

func TestNoArgumentsAreTheDefaults(t *testing.T) {
	for _, name := range pluginargs.Names() {
		for what, obj := range map[string]runtime.Object{"none": nil, "empty": &runtime.Unknown{}, "no field": &runtime.Unknown{Raw: []byte("{}")}} {
			if err := pluginargs.Decode(obj, pluginargs.New(name)); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	if pluginargs.New("NodeAffinity") != nil || pluginargs.Check("NodeAffinity", &runtime.Unknown{Raw: []byte("?")}, nil) != nil {
		t.Error("a plugin of Kubernetes is none of ours")
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ plugin, args, field, want string }{
		"unknown field":   {pluginargs.TunnelReach, `{"modus": "Prefer"}`, "args", `unknown field "modus"`},
		"duplicate field": {pluginargs.TunnelReach, `{"mode": "Prefer", "mode": "Require"}`, "args", `duplicate field "mode"`},
		"wrong case":      {pluginargs.TunnelReach, `{"Mode": "Prefer"}`, "args", `unknown field "Mode"`},
		"wrong type":      {pluginargs.ForeignNominations, `{"ignore": "a"}`, "args", "cannot be read"},
		"not JSON":        {pluginargs.ForeignNominations, `{`, "args", "cannot be read"},
		"mode":            {pluginargs.TunnelReach, `{"mode": "Maybe"}`, "args.mode", `"Prefer", "Require"`},
		"topology key":    {pluginargs.TunnelReach, `{"topologyKey": "a b"}`, "args.topologyKey", "name part"},
		"star and more":   {pluginargs.PolitePreemption, `{"evict": ["*", "a"]}`, "args.evict", "remove the other names"},
		"twice":           {pluginargs.PolitePreemption, `{"evict": ["a", "a"]}`, "args.evict[1]", "Duplicate"},
		"empty name":      {pluginargs.ForeignNominations, `{"ignore": [""]}`, "args.ignore[0]", "spec.schedulerName"},
		"percentage":      {pluginargs.PolitePreemption, `{"minCandidateNodesPercentage": 101}`, "args.minCandidateNodesPercentage", "between 0 and 100"},
		"no candidates":   {pluginargs.PolitePreemption, `{"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}`, "args.minCandidateNodesPercentage", "set one of them"},
		"negative":        {pluginargs.PolitePreemption, `{"minCandidateNodesAbsolute": -1}`, "args.minCandidateNodesAbsolute", "negative"},
		"short timeout":   {pluginargs.FailoverBarrier, `{"timeout": "1ms"}`, "args.timeout", "between 100ms and 1m"},
		"number":          {pluginargs.FailoverBarrier, `{"timeout": 5}`, "args", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &runtime.Unknown{Raw: []byte(tc.args)}
			err := pluginargs.Decode(obj, pluginargs.New(tc.plugin))
			if !errors.Is(err, pluginargs.ErrArgs) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("error %v, want %s: %s", err, tc.field, tc.want)
			}
			if errs := pluginargs.Check(tc.plugin, obj, field.NewPath("args")); len(errs) == 0 || errs[0].Field != tc.field {
				t.Errorf("Check: %v, want field %s", errs, tc.field)
			}
		})
	}
}
