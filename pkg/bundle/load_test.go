// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func TestLoadEmptyIsDefault(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "comment": "# nothing\n", "separators": "---\n# nothing\n---\n", "null": "null\n",
		"only type": bundletest.Header,
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(v1alpha1.New(), mustLoad(t, data)); diff != "" {
				t.Errorf("-default +got:\n%s", diff)
			}
		})
	}
}

// mustLoad reads a whole file that must be valid.
func mustLoad(t *testing.T, data string) *v1alpha1.Bundle {
	t.Helper()
	b, err := bundle.Load([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVersionsAreEqual: both versions of a file, and what Encode writes of it, are the
// same bundle.
func TestVersionsAreEqual(t *testing.T) {
	old := load(t, "konnectivity: {serverHost: 192.0.2.7, agentPort: 9132, server: {drainTimeout: 7s, proxyStrategies: [destHost, default]}, "+
		"agent: {hostNetwork: true, adminPort: 9000, healthPort: 9001, identifiers: 'ipv4=$(HOST_IP)'}}\npki: {validity: 1500ms}\n")
	hub := mustLoad(t, bundletest.File("konnectivity: {serverAddresses: [{host: 192.0.2.7, port: 9132}], server: {drainTimeoutSeconds: 7, proxyStrategies: [destHost, default]}, "+
		"agent: {hostNetwork: Enabled, adminPort: 9000, healthPort: 9001, identifiers: [{type: IPv4, value: $(HOST_IP)}]}}\npki: {validitySeconds: 2}\n"))
	stored, err := bundle.Encode(old)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old, mustLoad(t, string(stored))); diff != "" {
		t.Errorf("-before +stored:\n%s", diff)
	}
	old.PKI.Validity = hub.PKI.Validity // seconds cannot express the old one
	if diff := cmp.Diff(old, hub); diff != "" {
		t.Errorf("-v1alpha1 +v1beta1:\n%s", diff)
	}
}

// TestRefusalsNameTheVersionsFields: an error names the field as the file does.
func TestRefusalsNameTheVersionsFields(t *testing.T) {
	for file, want := range map[string]string{
		bundletest.Old("konnectivity: {agentPort: 80}"):                         "spec.konnectivity.agentPort: ",
		bundletest.File("konnectivity: {serverAddresses: [{port: 80}]}"):        "spec.konnectivity.serverAddresses[0].port: ",
		bundletest.File("scheduler: {leaderElection: {retryPeriodSeconds: 0}}"): "spec.scheduler.leaderElection.retryPeriodSeconds: ",
	} {
		if _, err := bundle.Load([]byte(file)); !errors.Is(err, bundle.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestLoadReadsTheLiveObject: what kubectl get -o yaml prints is a bundle too.
func TestLoadReadsTheLiveObject(t *testing.T) {
	b := mustLoad(t, "apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {name: default, uid: x, generation: 3, "+
		"creationTimestamp: '2026-01-02T03:04:05Z', managedFields: [{manager: kubectl, fieldsV1: {'f:spec': {}}}]}\n"+
		"spec: {namespace: own}\nstatus: {conditions: [{type: Ready}]}\n")
	if b.Namespace != "own" {
		t.Errorf("namespace %q", b.Namespace)
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
		"unknown field":         {bundletest.File("schedular: {}"), `unknown field "spec.schedular"`},
		"nested unknown field":  {bundletest.File("konnectivity: {server: {adminport: 1}}"), `unknown field "spec.konnectivity.server.adminport"`},
		"duplicate field":       {bundletest.File("namespace: a\nnamespace: b"), `key "namespace" already set`},
		"two mistakes":          {bundletest.File("a: 1\nb: 1"), `unknown field "spec.b"`},
		"nested duplicate":      {bundletest.File("scheduler:\n  name: a\n  name: b"), `key "name" already set`},
		"unknown, beside spec":  {bundletest.Header + "specs: {}", `unknown field "specs"`},
		"old shape":             {"apiVersion: fairlead.dev/v1alpha1\nkind: Bundle\nscheduler: {}\nkonnectivity: {}", "konnectivity, scheduler: a bundle is an object like any other: move these fields under spec"},
		"old shape, no type":    {"namespace: a", "move these fields under spec"},
		"half moved":            {bundletest.File("scheduler: {}") + "pki: {}", "pki: a bundle is an object like any other: move these fields under spec"},
		"apiVersion":            {"apiVersion: fairlead.dev/v2", `apiVersion: "fairlead.dev/v2" is not supported, write "fairlead.dev/v1beta1"`},
		"no apiVersion":         {"kind: Bundle\nspec: {}", "apiVersion is missing, write apiVersion: fairlead.dev/v1beta1"},
		"kind":                  {"apiVersion: fairlead.dev/v1beta1\nkind: Cluster", `kind: "Cluster" is not supported, write "Bundle"`},
		"no kind":               {"apiVersion: fairlead.dev/v1beta1\nspec: {}", "kind is missing, write kind: Bundle"},
		"another name":          {"apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {name: mine}", `metadata.name: "mine" is not supported, write "default"`},
		"in a namespace":        {"apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {namespace: mine}", "set spec.namespace"},
		"several documents":     {"namespace: a\n---\nnamespace: b", "several documents"},
		"wrong type":            {bundletest.Old("konnectivity: {agentPort: high}"), "konnectivity.agentPort"},
		"not YAML":              {"{", "yaml"},
		"a list":                {"- a", "cannot unmarshal array"},
		"field of old version":  {bundletest.File("konnectivity: {agentPort: 9132}"), `unknown field "spec.konnectivity.agentPort"`},
		"unusable enum":         {bundletest.File("konnectivity: {agent: {hostNetwork: Maybe}}"), `spec.konnectivity.agent.hostNetwork`},
		"two addresses":         {bundletest.File("konnectivity: {serverAddresses: [{host: a}, {host: b}]}"), `spec.konnectivity.serverAddresses`},
		"unknown profile field": {bundletest.File("scheduler: {profiles: [{schedulerName: a, plugin: {}}]}"), `unknown field "spec.scheduler.profiles[0].plugin"`},
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

// TestImagesAreBelieved: the bundle accepts any plugin for a custom image or another version, because it does not know
// which plugins that contains.
func TestImagesAreBelieved(t *testing.T) {
	for _, image := range []string{"example.test/scheduler:v9", "fairlead-dev/fairlead-scheduler:v9", "a/kube-scheduler:v1.99.0", "a/kube-scheduler"} {
		load(t, "scheduler: {image: '"+image+"', profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: Somebody}]}}}]}")
	}
	load(t, "scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.36.1', profiles: [{schedulerName: a}], builtInProfiles: {batch: {}}, "+
		"plugins: {politePreemption: {enabled: false}, foreignNominations: {enabled: false}, failoverBarrier: {enabled: false}}}")
}

// TestUsedSettingsLoad: explicit defaults, settings that a profile uses, and settings that are off anyway are not
// errors.
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
			stored, err := bundle.Encode(b)
			if err != nil {
				t.Fatal(err)
			}
			mustLoad(t, string(stored))
		})
	}
}

// TestLoadReportsAll: a user corrects all mistakes at once.
func TestLoadReportsAll(t *testing.T) {
	_, err := bundle.Load([]byte(bundletest.Old("scheduler: {replicas: 0}\nkonnectivity: {agentPort: 80}\npki: {algorithm: x}\n")))
	for _, field := range []string{"scheduler.replicas", "konnectivity.agentPort", "pki.algorithm"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v lacks %s", err, field)
		}
	}
}

// TestDisabledPartIsNotChecked: settings of parts that are not rendered are not validated.
func TestDisabledPartIsNotChecked(t *testing.T) {
	load(t, "scheduler: {enabled: false, replicas: 0}")
	load(t, "konnectivity: {enabled: false, agentPort: 1}")
}
