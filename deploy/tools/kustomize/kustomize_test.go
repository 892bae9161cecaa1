// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	root     = "../../.."
	chartDir = "deploy/helm/fairlead"
)

func TestUpToDate(t *testing.T) {
	if err := run(root, true); err != nil {
		t.Error(err)
	}
}

func TestCheckFindsDrift(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err != nil {
		t.Fatal(err)
	}
	objects, err := filepath.Glob(filepath.Join(dir, kustomizeDir, "*", "objects.yaml"))
	if err != nil || len(objects) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	if err := os.WriteFile(objects[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err == nil || !strings.Contains(err.Error(), "objects.yaml is out of date") {
		t.Errorf("changed file: %v", err)
	}
	if err := run(dir, false); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err != nil {
		t.Errorf("after writing: %v", err)
	}
}

// objectsOf reads documents and sorts them by kind, namespace and name.
func objectsOf(t *testing.T, data []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 {
			continue
		}
		key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if out[key] != nil {
			t.Errorf("%s appears twice", key)
		}
		out[key] = u.Object
	}
}

// rendered is what the bundle makes of a configuration.
func rendered(t *testing.T, config string) map[string]any {
	t.Helper()
	objects, err := render([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	data, err := documents(objects)
	if err != nil {
		t.Fatal(err)
	}
	return objectsOf(t, data)
}

// TestManifests: manifests/ is the default bundle.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob(root + "/manifests/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, "---\n"...), data...)
	}
	if diff := cmp.Diff(rendered(t, ""), objectsOf(t, all)); diff != "" {
		t.Errorf("-bundle +manifests:\n%s", diff)
	}
}

// TestKustomize builds every directory as `kubectl apply -k` does.
func TestKustomize(t *testing.T) {
	configs, err := filepath.Glob(root + "/" + kustomizeDir + "/*/bundle.yaml")
	if err != nil || len(configs) < 4 {
		t.Fatalf("%d directories, %v", len(configs), err)
	}
	for _, config := range configs {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
			if err != nil {
				t.Fatal(err)
			}
			built, err := resources.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rendered(t, string(want)), objectsOf(t, built)); diff != "" {
				t.Errorf("-bundle +kustomize:\n%s", diff)
			}
		})
	}
}

// helm builds Helm's engine; what it returns renders the chart.
func helm(t *testing.T) func(t *testing.T, namespace, values string) ([]byte, error) {
	t.Helper()
	testutil.Full(t, "compiles Helm's engine")
	program := filepath.Join(t.TempDir(), "helmtemplate")
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-C", filepath.Join(root, "deploy/tools/helmtemplate"), "-o", program}, components.Flags()...)...)
	build.Env = append(os.Environ(), components.Environ()...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(t *testing.T, namespace, values string) ([]byte, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, filepath.Join(root, chartDir), namespace, file)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, &stderr)
		}
		return out, err
	}
}

// helmCases are values of the chart, and the bundle's settings that they stand for. In
// another namespace than kube-system the values are the bundle's settings.
var helmCases = map[string]struct{ namespace, values, bundle string }{
	"default":        {"kube-system", "", ""},
	"scheduler only": {"kube-system", "konnectivity: {enabled: false}", "konnectivity: {enabled: false}"},
	"tunnel only":    {"kube-system", "scheduler: {enabled: false}", "scheduler: {enabled: false}"},
	"lease counting": {"kube-system", "konnectivity: {leaseCounting: true}", "konnectivity: {leaseCounting: true}"},
	"no policy":      {"kube-system", "konnectivity: {agent: {networkPolicy: false}}", "konnectivity: {agent: {networkPolicy: false}}"},
	"own host":       {"kube-system", "konnectivity: {serverHost: 10.0.0.1}", "konnectivity: {serverHost: 10.0.0.1}"},
	"everything, in another namespace": {
		"tunnels",
		`
scheduler:
  image: registry.example.com/scheduler:v1
  replicas: 5
  resources: {limits: {memory: 1Gi}, requests: {cpu: "1", memory: 1Gi}}
  nodeSelector: {pool: system}
  tolerations: [{key: system, operator: Equal, value: "true", effect: NoExecute, tolerationSeconds: 30}]
konnectivity:
  leaseCounting: true
  agent:
    image: registry.example.com/agent@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    resources: {limits: {memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}
    nodeSelector: {kubernetes.io/os: linux}
    tolerations: [{operator: Exists}]
`, "",
	},
	"mirror": {"kube-system", "scheduler: {image: 'mirror.example:5000/a/fairlead-scheduler:v9'}", "scheduler: {image: 'mirror.example:5000/a/fairlead-scheduler:v9'}"},
	"stock":  {"kube-system", "scheduler: {image: 'mirror.example/not-fairlead-scheduler'}", "scheduler: {image: 'mirror.example/not-fairlead-scheduler'}"},
	"null is empty": {
		"kube-system", `
scheduler: {nodeSelector: null, tolerations: null, resources: null}
konnectivity: {serverHost: null, leaseCounting: null, agent: {nodeSelector: null, tolerations: null, resources: null}}`, `
scheduler: {tolerations: [], resources: {}}
konnectivity: {agent: {tolerations: [], resources: {}}}`,
	},
	"null removes a key": {
		"kube-system", "scheduler: {resources: {requests: {cpu: null}}}\nkonnectivity: {agent: {resources: {requests: null}}}",
		"scheduler: {resources: {requests: {memory: 128Mi}}}\nkonnectivity: {agent: {resources: {limits: {memory: 1536Mi}}}}",
	},
	"gateway": {"kube-system", "gateway: {enabled: true}", "gateway: {enabled: true}"},
	"gateway, everything": {
		"kube-system", `
gateway:
  enabled: true
  image: registry.example.com/fairlead:v1
  replicas: 1
  serviceType: LoadBalancer
  certificateSecret: mine
  clientCertificates: true
  allow: [192.0.2.0/24, "*.example.org:443"]
  deny: [":22"]
  networkPolicy: false
  resources: {limits: {memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}
  nodeSelector: {pool: edge}
  tolerations: [{operator: Exists}]
`, `
gateway:
  enabled: true
  image: registry.example.com/fairlead:v1
  replicas: 1
  serviceType: LoadBalancer
  certificateSecret: mine
  clientCertificates: true
  allow: [192.0.2.0/24, "*.example.org:443"]
  deny: [":22"]
  networkPolicy: false
  resources: {limits: {memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}
  nodeSelector: {pool: edge}
  tolerations: [{operator: Exists}]
`,
	},
	"no tolerations": {"kube-system", "scheduler: {tolerations: []}\nkonnectivity: {agent: {tolerations: []}}", "scheduler: {tolerations: []}\nkonnectivity: {agent: {tolerations: []}}"},
}

// TestHelm renders the chart by Helm's engine, with the same settings as a bundle.
func TestHelm(t *testing.T) {
	render := helm(t)
	for name, tc := range helmCases {
		t.Run(name, func(t *testing.T) {
			got, err := render(t, tc.namespace, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			config := tc.bundle
			if tc.namespace != "kube-system" {
				config = "namespace: " + tc.namespace + "\n" + tc.values // the values are named as the bundle's fields
			}
			want := rendered(t, bundletest.Old(config))
			delete(want, "Namespace /"+tc.namespace) // helm install --create-namespace makes it
			if diff := cmp.Diff(want, objectsOf(t, got)); diff != "" {
				t.Errorf("-bundle +Helm:\n%s", diff)
			}
		})
	}
}

// TestHelmRefuses: the chart rejects unknown and invalid values and names them.
// Otherwise the release would differ from what the user asked for.
func TestHelmRefuses(t *testing.T) {
	render := helm(t)
	for values, want := range map[string]string{
		"sheduler: {enabled: false}":                                            "sheduler",
		"scheduler: {replica: 3}":                                               "replica",
		"scheduler: {replicas: 0}":                                              "/scheduler/replicas",
		"scheduler: {replicas: \"3\"}":                                          "/scheduler/replicas",
		"scheduler: {enabled: \"false\"}":                                       "/scheduler/enabled",
		"scheduler: {image: \"\"}":                                              "/scheduler/image",
		"scheduler: {resources: {limit: {cpu: 1}}}":                             "limit",
		"scheduler: {resources: {limits: {cpu: 1 core}}}":                       "/scheduler/resources/limits/cpu",
		"scheduler: {nodeSelector: {a: true}}":                                  "/scheduler/nodeSelector/a",
		"konnectivity: {serverHost: \"https://10.0.0.1\"}":                      "/konnectivity/serverHost",
		"konnectivity: {leaseCounting: 1}":                                      "/konnectivity/leaseCounting",
		"konnectivity: {agents: {}}":                                            "agents",
		"konnectivity: {agent: {tolerations: [{effect: NoShedule}]}}":           "/konnectivity/agent/tolerations/0/effect",
		"konnectivity: {agent: {tolerations: [{operator: Exists, values: x}]}}": "values",
		"konnectivity: {agent: {resources: {requests: {memory: -1}}}}":          "/konnectivity/agent/resources/requests/memory",
		"scheduler: null":                                                       "missing property 'scheduler'",
		"scheduler: {enabled: null}":                                            "/scheduler': missing property 'enabled'",
		"scheduler: {image: null}":                                              "/scheduler': missing property 'image'",
		"scheduler: {replicas: null}":                                           "/scheduler': missing property 'replicas'",
		"scheduler: {nodeSelector: {a: null}}":                                  "/scheduler/nodeSelector/a",
		"scheduler: {resources: {limits: {cpu: null}}}":                         "/scheduler/resources/limits/cpu",
		"scheduler: {tolerations: [null]}":                                      "/scheduler/tolerations/0",
		"scheduler: {tolerations: [{key: null}]}":                               "/scheduler/tolerations/0/key",
		"gateway: {serviceType: ExternalName}":                                  "/gateway/serviceType",
		"gateway: {allow: ['a, b']}":                                            "/gateway/allow/0",
		"konnectivity: null":                                                    "missing property 'konnectivity'",
		"konnectivity: {enabled: null}":                                         "/konnectivity': missing property 'enabled'",
		"konnectivity: {agent: null}":                                           "/konnectivity': missing property 'agent'",
		"konnectivity: {agent: {image: null}}":                                  "/konnectivity/agent': missing property 'image'",
	} {
		if _, err := render(t, "kube-system", values); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v; want that %s is refused by the schema", values, err, want)
		}
	}
	if _, err := render(t, "kube-system", "global: {x: 1}\nscheduler: {resources: {limits: {cpu: 1.5, memory: 1Gi, example.com/gpu: 2}}}"); err != nil {
		t.Error(err)
	}
}

// TestValuesAreTheBundlesDefaults: the chart's values.yaml, read as a bundle's spec, is the
// default bundle.
func TestValuesAreTheBundlesDefaults(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Load([]byte(bundletest.Old(string(data)))); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(rendered(t, ""), rendered(t, bundletest.Old(string(data)))); diff != "" {
		t.Errorf("-default +values:\n%s", diff)
	}
}
