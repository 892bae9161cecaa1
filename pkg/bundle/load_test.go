package bundle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func TestLoadEmptyIsDefault(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "comment": "# nothing\n", "separators": "---\n# nothing\n---\n", "null": "null\n",
		"only type": "apiVersion: fairlead.dev/v1alpha1\nkind: Bundle\n",
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(v1alpha1.New(), load(t, data)); diff != "" {
				t.Errorf("-default +got:\n%s", diff)
			}
		})
	}
}

func TestDefaultIsIdempotent(t *testing.T) {
	for name, b := range variants(t) {
		again := b.DeepCopy()
		v1alpha1.Default(again)
		if diff := cmp.Diff(b, again); diff != "" {
			t.Errorf("%s: defaulting twice differs:\n%s", name, diff)
		}
	}
}

// TestLoadRefusesForm is about files that are not a configuration.
func TestLoadRefusesForm(t *testing.T) {
	for name, tc := range map[string]struct{ config, want string }{
		"unknown field":         {"schedular: {}", `unknown field "schedular"`},
		"nested unknown field":  {"konnectivity: {server: {adminport: 1}}", `unknown field "konnectivity.server.adminport"`},
		"duplicate field":       {"namespace: a\nnamespace: b", `key "namespace" already set`},
		"two mistakes":          {"a: 1\nb: 1", `unknown field "b"`},
		"nested duplicate":      {"scheduler:\n  name: a\n  name: b", `key "name" already set`},
		"apiVersion":            {"apiVersion: fairlead.dev/v2", `apiVersion: "fairlead.dev/v2" is not supported, write "fairlead.dev/v1alpha1"`},
		"kind":                  {"apiVersion: fairlead.dev/v1alpha1\nkind: Cluster", `kind: "Cluster" is not supported, write "Bundle"`},
		"several documents":     {"namespace: a\n---\nnamespace: b", "several documents"},
		"wrong type":            {"konnectivity: {agentPort: high}", "konnectivity.agentPort"},
		"not YAML":              {"{", "yaml"},
		"a list":                {"- a", "cannot unmarshal array"},
		"unknown profile field": {"scheduler: {profiles: [{schedulerName: a, plugin: {}}]}", `unknown field "scheduler.profiles[0].plugin"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Load([]byte(tc.config))
			if !errors.Is(err, bundle.ErrDecode) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want ErrDecode with %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error is not one line: %v", err)
			}
		})
	}
}

// TestGatesTogether: gates that depend on each other are fine together.
func TestGatesTogether(t *testing.T) {
	for _, gates := range []string{"{GenericWorkload: true, GangScheduling: true}", "{AllBeta: true}", "{AllAlpha: true, WorkloadAwarePreemption: false}"} {
		load(t, "scheduler: {builtInProfiles: {spread: {}}, featureGates: "+gates+"}")
	}
}

// TestImagesAreBelieved: nobody knows what an image of one's own, or another version, holds.
func TestImagesAreBelieved(t *testing.T) {
	for _, image := range []string{"example.test/scheduler:v9", "fairlead-dev/fairlead-scheduler:v9", "a/kube-scheduler:v1.99.0", "a/kube-scheduler"} {
		load(t, "scheduler: {image: '"+image+"', profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: Somebody}]}}}]}")
	}
	load(t, "scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.36.1', profiles: [{schedulerName: a}], builtInProfiles: {batch: {}}, "+
		"plugins: {politePreemption: {enabled: false}, foreignNominations: {enabled: false}, failoverBarrier: {enabled: false}}}")
}

// TestUsedSettingsLoad: defaults that are written out, what some profile takes, and what is off anyhow are no mistakes.
func TestUsedSettingsLoad(t *testing.T) {
	for name, config := range map[string]string{
		"defaults of what is off": "{plugins: {tunnelReach: {enabled: false, mode: Prefer, topologyKey: kubernetes.io/hostname, automatic: true}}}",
		"default arguments":       "{plugins: {politePreemption: {enabled: false, evict: [], minCandidateNodesPercentage: 10}, failoverBarrier: {enabled: false, timeout: 5000ms}}}",
		"own profiles alone":      "{profiles: [{schedulerName: a}], plugins: {tunnelReach: {enabled: false}, politePreemption: {enabled: true, minCandidateNodesAbsolute: 100}, foreignNominations: {enabled: false}}}",
		"own beside built-in":     "{profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}}}], builtInProfiles: {standard: {}}, plugins: {failoverBarrier: {enabled: false}, tunnelReach: {enabled: true, mode: Require}}}",
		"default profile":         "{plugins: {tunnelReach: {enabled: true, automatic: false}, politePreemption: {evict: [x]}}}",
		"default skew":            "{builtInProfiles: {spread: {maxSkew: 1}}}",
		"skew of a key":           "{builtInProfiles: {spread: {maxSkew: 3, topologyKeys: [kubernetes.io/hostname]}}}",
	} {
		t.Run(name, func(t *testing.T) {
			b := load(t, "scheduler: "+config)
			// A cluster keeps its bundle with all defaults, and reads it again.
			stored, err := yaml.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			load(t, string(stored))
		})
	}
}

// TestLoadReportsAll: a user corrects all mistakes at once.
func TestLoadReportsAll(t *testing.T) {
	_, err := bundle.Load([]byte("scheduler: {replicas: 0}\nkonnectivity: {agentPort: 80}\npki: {algorithm: x}\n"))
	for _, field := range []string{"scheduler.replicas", "konnectivity.agentPort", "pki.algorithm"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v lacks %s", err, field)
		}
	}
}

// TestDisabledPartIsNotChecked: what is not rendered cannot be wrong.
func TestDisabledPartIsNotChecked(t *testing.T) {
	load(t, "scheduler: {enabled: false, replicas: 0}")
	load(t, "konnectivity: {enabled: false, agentPort: 1}")
}
