// SPDX-License-Identifier: Apache-2.0

package component_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestFourForms: one description, and the same Pod in every form.
func TestFourForms(t *testing.T) {
	c := konnectivity.Server(v1alpha1.New())
	pod, err := component.StaticPod(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod.Spec, component.DaemonSet(c).Spec.Template.Spec); diff != "" {
		t.Errorf("-static Pod +DaemonSet:\n%s", diff)
	}
	if diff := cmp.Diff(pod.Spec, component.Deployment(c).Spec.Template.Spec); diff != "" {
		t.Errorf("-static Pod +Deployment:\n%s", diff)
	}
	process := component.LocalProcess(c, component.LocalOptions{})
	if diff := cmp.Diff(pod.Spec.Containers[0].Args, process.Args); diff != "" {
		t.Errorf("-static Pod +local process:\n%s", diff)
	}
	if process.Command != "konnectivity-server" {
		t.Errorf("command %q", process.Command)
	}
}

// TestStaticPodRefuses: a component that uses a ServiceAccount or a ConfigMap
// cannot be a static Pod.
func TestStaticPodRefuses(t *testing.T) {
	b := v1alpha1.New()
	withConfigMap := scheduler.Component(b)
	withConfigMap.ServiceAccount = ""
	withToken := konnectivity.Agent(b)
	withToken.ServiceAccount = ""
	for name, tc := range map[string]struct {
		c    component.Component
		want string
	}{
		"ServiceAccount": {scheduler.Component(b), "give it a kubeconfig"},
		"ConfigMap":      {withConfigMap, "volume config-volume comes from the API"},
		"token":          {withToken, "volume konnectivity-agent-token comes from the API"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := component.StaticPod(tc.c)
			if pod != nil || !errors.Is(err, component.ErrNotStatic) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Pod %v, error %v, want ErrNotStatic with %q", pod, err, tc.want)
			}
		})
	}
}

// TestLocalProcess maps paths and ports and nothing else, and passes on the
// environment that does not depend on the Pod.
func TestLocalProcess(t *testing.T) {
	c := component.Component{Name: "n", Binary: "b", Flags: []component.Flag{
		component.PlainFlag("plain", "/not/a/path"), component.PathFlag("path", "/a"), component.PathFlag("none", ""),
		component.PortFlag("port", "p", 8132), component.IntFlag("number", 8132), component.BoolFlag("on", true),
		component.PortFlag("zero", "p", 0), component.PlainFlag("replaced", "old"),
	}, Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{}}, {Name: "EMPTY"}}}
	got := component.LocalProcess(c, component.LocalOptions{
		Path: func(p string) string { return "/local" + p },
		Port: func(name string, n int32) int32 {
			if name != "p" {
				t.Errorf("port %q", name)
			}
			return n + 1
		},
		Extra: []component.Flag{component.PathFlag("replaced", "/new"), component.PlainFlag("added", "x")},
	})
	want := component.Process{Name: "n", Command: "b", Args: []string{
		"--plain=/not/a/path", "--path=/local/a", "--none=", "--port=8133", "--number=8132", "--on=true",
		"--zero=0", "--replaced=/new", "--added=x",
	}, Env: []string{"A=1", "EMPTY="}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.Flags[7].Value != "old" {
		t.Error("the component was changed")
	}
}

// TestPathsAndPortsAreTyped: a flag whose value is a path or one of the ports
// must say so, or a local process would use the container's.
func TestPathsAndPortsAreTyped(t *testing.T) {
	b := v1alpha1.New()
	b.Konnectivity.LeaseCounting = ptr.To(true)
	for _, c := range []component.Component{scheduler.Component(b), konnectivity.Server(b), konnectivity.Agent(b)} {
		numbers := map[string]bool{}
		for _, p := range c.Ports {
			numbers[component.IntFlag("", p.Number).Value] = true
		}
		for _, f := range c.Flags {
			if strings.HasPrefix(f.Value, "/") && f.Kind != component.Path {
				t.Errorf("%s: %s is a path of kind %v", c.Name, f, f.Kind)
			}
			if numbers[f.Value] && (f.Kind != component.PortNumber || f.Port == "") {
				t.Errorf("%s: %s is a port of kind %v", c.Name, f, f.Kind)
			}
		}
		for _, p := range c.Ports {
			if !hasPortFlag(c, p.Name) {
				t.Errorf("%s: no flag sets port %s", c.Name, p.Name)
			}
		}
	}
}

func hasPortFlag(c component.Component, name string) bool {
	for _, f := range c.Flags {
		if f.Kind == component.PortNumber && f.Port == name {
			return true
		}
	}
	return false
}
