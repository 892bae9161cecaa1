// SPDX-License-Identifier: Apache-2.0

package kubectldocs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/e2e/doccommands"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/get"
	"sigs.k8s.io/yaml"
)

const repository = "../../.."

// TestKubectlCommands proves that each kubectl command in a shell block of the documentation is one that kubectl has, with its flags, and that the
// kinds, namespaces, names, labels, roles, users, files and expressions in it are those of a cluster with Fairlead. It runs none of them.
func TestKubectlCommands(t *testing.T) {
	w := newWorld(t)
	pages, err := doccommands.Pages(repository)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		data, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range doccommands.ShellLines(string(data)) {
			for _, args := range kubectlIn(line) {
				found++
				if err := w.check(args); err != nil {
					t.Errorf("%s: %s\n\t%v", page, line, err)
				}
			}
		}
	}
	if found < 90 {
		t.Errorf("found only %d commands", found)
	}
}

// TestFindsMistakes proves that the checks above see each kind of mistake.
func TestFindsMistakes(t *testing.T) {
	w := newWorld(t)
	for line, want := range map[string]string{
		"kubectl get pods -A":                                                      "",
		"kubectl gett pods":                                                        "unknown command",
		"kubectl rollout statuses x":                                               "no command",
		"kubectl get pods --no-such-flag":                                          "unknown flag",
		"kubectl get podz":                                                         "no resource podz",
		"kubectl get deployments,podz":                                             "no resource podz",
		"kubectl get tunnelagents":                                                 "",
		"kubectl get tunnelagent.example.com":                                      "no resource",
		"kubectl -n kube-systems get pods":                                         "namespace kube-systems",
		"kubectl -n kube-system logs daemonset/agents":                             "no daemonsets agents",
		"kubectl -n kube-system describe lease other":                              "no leases other",
		"kubectl -n kube-system get pods -l app=none":                              "matches nothing",
		"kubectl -n kube-system get leases -l k8s-app=konnectivity-server":         "matches nothing",
		"kubectl -n fairlead-system logs -l k8s-app=konnectivity-agent":            "matches nothing",
		"kubectl -n $SPACE get leases -l k8s-app=konnectivity-server":              "",
		"kubectl get pods --field-selector 'a b'":                                  "field-selector",
		"kubectl create clusterrolebinding a --clusterrole=fairlead-none --user=a": "no clusterroles fairlead-none",
		"kubectl create clusterrolebinding a --clusterrole=system:monitoring --user=system:konnectiv": "user system:konnectiv",
		"kubectl auth can-i get nodes/proxy":                                                  "--subresource",
		"kubectl auth can-i get nodes --subresource=proxy":                                    "",
		"kubectl apply -f deploy/none.yaml":                                                   "deploy/none.yaml",
		"kubectl get bundle -o jsonpath='{.a'":                                                "jsonpath",
		"kubectl get bundle -o custom-columns=NAME":                                           "custom-columns",
		`kubectl patch bundle default --type=merge -p '{"spec": {"deletePolicy": "Delete"}}'`: "deletePolicy",
		`kubectl patch bundle default --type=merge -p '{"spec": '`:                            "JSON",
		`kubectl run a --image=b --overrides='{"spec": {"scheduler": "my-scheduler"}}'`:       "scheduler",
		"X=$(sudo kubectl get podz | cat)":                                                    "no resource podz",
		"fairlead proxy -- kubectl get podz":                                                  "no resource podz",
	} {
		var got error
		commands := kubectlIn(line)
		for _, args := range commands {
			if err := w.check(args); err != nil {
				got = err
			}
		}
		if len(commands) == 0 || (got != nil) != (want != "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, want %q", line, got, want)
		}
	}
}

// kubectlIn returns the arguments of kubectl's commands in a line, also of those that another program runs.
func kubectlIn(line string) [][]string {
	var out [][]string
	for _, words := range doccommands.SimpleCommands(line) {
		words = doccommands.Program(words)
		if i := slices.Index(words, "--"); i >= 0 && len(words) > 0 && filepath.Base(words[0]) == "fairlead" {
			words = words[i+1:]
		}
		if len(words) > 1 && words[0] == "kubectl" && words[1] != "fairlead" {
			out = append(out, words[1:])
		}
	}
	return out
}

// command is one that kubectl has parsed.
type command struct {
	*cobra.Command
	w *world
}

func (c *command) flag(name string) string {
	if f := c.Flags().Lookup(name); f != nil && f.Changed {
		return f.Value.String()
	}
	return ""
}

func (w *world) check(args []string) error {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := cmd.NewKubectlCommand(cmd.KubectlOptions{IOStreams: streams, ConfigFlags: genericclioptions.NewConfigFlags(true)})
	found, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := found.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", found.CommandPath(), err)
	}
	if found.HasSubCommands() && found.Flags().NArg() > 0 {
		return fmt.Errorf("%s has no command %q", found.CommandPath(), found.Flags().Arg(0))
	}
	if err := found.ValidateArgs(found.Flags().Args()); err != nil {
		return fmt.Errorf("%s: %w", found.CommandPath(), err)
	}
	c := &command{found, w}
	for _, check := range []func() error{c.namespace, c.objects, c.selectors, c.roles, c.output, c.files, c.patch} {
		if err := check(); err != nil {
			return fmt.Errorf("%s: %w", found.CommandPath(), err)
		}
	}
	return nil
}

// placeholder is a name that the reader replaces.
var placeholder = regexp.MustCompile(`^$|[A-Z$]`)

func (c *command) namespace() error {
	if space := c.space(); space != "" && !c.w.spaces[space] {
		return fmt.Errorf("there is no namespace %s", space)
	}
	return nil
}

// space is the namespace of the command; empty if the reader chooses it, or for all.
func (c *command) space() string {
	if space := c.flag("namespace"); !placeholder.MatchString(space) {
		return space
	}
	return ""
}

// selected are the resources to which the command's selector applies; empty if that is not known.
func (c *command) selected() []string {
	args := c.Flags().Args()
	switch c.CommandPath() {
	case "kubectl logs", "kubectl top pods", "kubectl top pod":
		return []string{"pods"}
	case "kubectl get", "kubectl describe", "kubectl delete", "kubectl wait":
		if len(args) > 0 && !strings.Contains(args[0], "/") {
			var all []string
			for _, kind := range strings.Split(args[0], ",") {
				all = append(all, c.w.kinds[strings.ToLower(kind)])
			}
			return all
		}
	}
	return []string{""}
}

// objects looks at TYPE NAME..., TYPE/NAME... and TYPE,TYPE.
func (c *command) objects() error {
	args := c.Flags().Args()
	switch c.CommandPath() {
	case "kubectl auth can-i":
		if len(args) < 2 {
			return nil
		}
		if strings.Contains(args[1], "/") {
			return fmt.Errorf("%s is an object of that name: a subresource is --subresource", args[1])
		}
		return c.kind(args[1])
	case "kubectl create role", "kubectl create clusterrole":
		for _, resource := range c.list("resource") {
			resource, _, _ = strings.Cut(resource, "/")
			if err := c.kind(resource); err != nil {
				return err
			}
		}
		return nil
	case "kubectl logs":
		if len(args) > 0 && strings.Contains(args[0], "/") {
			return c.named(args[:1])
		}
		return nil
	case "kubectl get", "kubectl describe", "kubectl delete", "kubectl wait", "kubectl patch", "kubectl scale", "kubectl label", "kubectl rollout status", "kubectl rollout restart":
	default:
		return nil
	}
	if len(args) == 0 || c.flag("raw") != "" {
		return nil
	}
	if strings.Contains(args[0], "/") {
		return c.named(args)
	}
	for _, kind := range strings.Split(args[0], ",") {
		if err := c.kind(kind); err != nil {
			return err
		}
		for _, name := range args[1:] {
			if err := c.name(kind, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *command) named(args []string) error {
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		if err := c.kind(kind); err != nil {
			return err
		}
		if err := c.name(kind, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) kind(kind string) error {
	if c.w.kinds[strings.ToLower(kind)] == "" {
		return fmt.Errorf("there is no resource %s", kind)
	}
	return nil
}

// name looks at objects in namespaces of Fairlead's, of kinds that it has there.
func (c *command) name(kind, name string) error {
	plural, space := c.w.kinds[strings.ToLower(kind)], c.flag("namespace")
	checked := []string{"deployments", "daemonsets", "leases", "secrets", "configmaps", "services", "serviceaccounts"}
	if !slices.Contains(checked, plural) || space == "" || slices.Contains(examples, space) || placeholder.MatchString(name) {
		return nil
	}
	if !c.w.names[plural+" "+space+"/"+name] {
		return fmt.Errorf("there is no %s %s in namespace %s", plural, name, space)
	}
	return nil
}

func (c *command) selectors() error {
	if text := c.flag("selector"); text != "" {
		s, err := labels.Parse(text)
		if err != nil {
			return err
		}
		for _, resource := range c.selected() {
			if !c.w.selects(s, resource, c.space()) {
				return fmt.Errorf("selector %s matches nothing of %q in namespace %q", text, resource, c.space())
			}
		}
	}
	if _, err := fields.ParseSelector(c.flag("field-selector")); err != nil {
		return fmt.Errorf("--field-selector: %w", err)
	}
	return nil
}

func (c *command) list(flag string) []string {
	if values, err := c.Flags().GetStringArray(flag); err == nil {
		return values
	}
	values, _ := c.Flags().GetStringSlice(flag)
	return values
}

// roles looks at bindings: Kubernetes accepts one of a role or a user that does not exist.
func (c *command) roles() error {
	if role := c.flag("clusterrole"); role != "" && !c.w.names["clusterroles /"+role] {
		return fmt.Errorf("there is no clusterroles %s", role)
	}
	for _, user := range append(c.list("user"), c.flag("as")) {
		if strings.HasPrefix(user, "system:") && user != konnectivity.ServerUser {
			return fmt.Errorf("there is no user %s", user)
		}
	}
	return nil
}

func (c *command) output() error {
	how := c.flag("output")
	if path, ok := strings.CutPrefix(how, "jsonpath="); ok {
		return parseJSONPath(path)
	}
	if spec, ok := strings.CutPrefix(how, "custom-columns="); ok {
		if _, err := get.NewCustomColumnsPrinterFromSpec(spec, scheme.Codecs.UniversalDecoder(), false); err != nil {
			return fmt.Errorf("custom-columns: %w", err)
		}
	}
	for _, condition := range c.list("for") {
		if path, ok := strings.CutPrefix(condition, "jsonpath="); ok {
			path, _, _ = strings.Cut(path, "=")
			return parseJSONPath(path)
		}
	}
	return nil
}

func parseJSONPath(text string) error {
	path, err := get.RelaxedJSONPathExpression(text)
	if err == nil {
		err = jsonpath.New("").Parse(path)
	}
	if err != nil {
		return fmt.Errorf("jsonpath %s: %w", text, err)
	}
	return nil
}

// files looks at those of the repository.
func (c *command) files() error {
	for _, file := range append(c.list("filename"), c.flag("kustomize")) {
		if !strings.HasPrefix(file, "manifests/") && !strings.HasPrefix(file, "deploy/") {
			continue
		}
		if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
			return err
		}
	}
	return nil
}

// patch looks at JSON in flags: a field that a type does not have would be dropped.
func (c *command) patch() error {
	for _, flag := range []string{"patch", "overrides"} {
		text := c.flag(flag)
		if text == "" {
			continue
		}
		if !json.Valid([]byte(text)) {
			return fmt.Errorf("--%s is no JSON", flag)
		}
		var of runtime.Object
		switch {
		case flag == "overrides":
			of = &corev1.Pod{}
		case c.Flags().NArg() > 0 && c.w.kinds[c.Flags().Arg(0)] == "bundles":
			of = &v1beta1.Bundle{}
		default:
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(text), of); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	return nil
}
