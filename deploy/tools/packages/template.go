package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// templater makes the template of one object.
type templater struct {
	// part is the section of the values that the object's own fields have.
	part string
	// without are the container's args with lease counting off.
	without []any
	// stranger is the same object for a scheduler image that is not known to have
	// Fairlead's plugins, if the object is the scheduler's ConfigMap.
	stranger *unstructured.Unstructured
	// config is the named template of the scheduler's configuration, if the object
	// is its ConfigMap.
	config string
	// tokens stand in the YAML for expressions, which an encoder would quote.
	tokens []string
}

// Tokens. Blocks replace their whole line and the key before them.
var (
	blockToken = regexp.MustCompile(`(?m)^( *)(\w+): TOKENBLOCK(\d+)X$`)
	whole      = regexp.MustCompile(`(?m)([:-]) TOKEN(\d+)X$`)
	inside     = regexp.MustCompile(`TOKEN(\d+)X`)
	onlyIf     = regexp.MustCompile(`(?m)(?:^ *- TOKENIF.*\n)+`)
)

// configTemplate is the name of the scheduler's configuration in the chart.
const configTemplate = "fairlead.schedulerConfig"

func (t *templater) template(o *unstructured.Unstructured, conditions []string) (string, error) {
	tree, _ := t.walk(o.DeepCopy().Object, "").(map[string]any)
	data, err := yaml.Marshal(tree)
	if err != nil {
		return "", err
	}
	text := blockToken.ReplaceAllStringFunc(string(data), t.block)
	text = whole.ReplaceAllStringFunc(text, func(m string) string {
		s := whole.FindStringSubmatch(m)
		return s[1] + " {{ " + t.expr(s[2]) + t.quote(s[2]) + " }}"
	})
	text = inside.ReplaceAllStringFunc(text, func(m string) string { return "{{ " + t.expr(inside.FindStringSubmatch(m)[1]) + " }}" })
	text = onlyIf.ReplaceAllStringFunc(text, func(m string) string {
		return "{{- if " + leaseCounting + " }}\n" + strings.ReplaceAll(m, "TOKENIF", "") + "{{- end }}\n"
	})
	switch len(conditions) {
	case 0:
		return text, nil
	case 1:
		return "{{- if " + conditions[0] + " }}\n" + text + "{{- end }}\n", nil
	}
	return "{{- if and " + strings.Join(conditions, " ") + " }}\n" + text + "{{- end }}\n", nil
}

// walk puts tokens in place of sentinels.
func (t *templater) walk(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		if t.isBlock(v, key) {
			return t.token("BLOCK", optional(t.part, key))
		}
		if v["kind"] == "ConfigMap" {
			t.takeConfig(v)
		}
		for k, x := range v {
			v[k] = t.walk(x, k)
		}
		return v
	case []any:
		if first, ok := v[0].(map[string]any); ok && key == "tolerations" && first["key"] == markKey {
			return t.token("BLOCK", optional(t.part, key))
		}
		if key == "args" {
			return t.args(v)
		}
		for i, x := range v {
			v[i] = t.walk(x, "")
		}
		return v
	case int64:
		if v == markReplicas {
			return t.token("", t.part+".replicas | int")
		}
	case string:
		return t.text(v, key)
	}
	return v
}

// isBlock tells whether a map as a whole is a value.
func (t *templater) isBlock(m map[string]any, key string) bool {
	switch key {
	case "nodeSelector":
		return m[markKey] != nil
	case "resources":
		cpu, _, _ := unstructured.NestedString(m, "requests", "cpu")
		return cpu == "7907m" || cpu == "7901m"
	}
	return false
}

func (t *templater) text(s, key string) string {
	switch {
	case s == markScheduler, s == markAgent:
		return t.token("", t.part+".image")
	case key == "fairlead.dev/config-hash":
		return t.token("", `include "`+configTemplate+`" . | sha256sum | trunc 16`)
	}
	host := v1alpha1.ServiceHost(markNamespace)
	if strings.Contains(s, host) {
		s = strings.ReplaceAll(s, host, t.token("", serverHost+` | default (printf "`+strings.ReplaceAll(host, markNamespace, "%s")+`" .Release.Namespace)`))
	}
	if strings.Contains(s, markNamespace) {
		s = strings.ReplaceAll(s, markNamespace, t.token("", ".Release.Namespace"))
	}
	return s
}

// args marks those that come with lease counting only.
func (t *templater) args(list []any) []any {
	out := make([]any, 0, len(list))
	for _, a := range list {
		s := t.text(a.(string), "")
		if t.without != nil && !slices.Contains(t.without, a) {
			s = "TOKENIF" + s
		}
		out = append(out, s)
	}
	return out
}

// takeConfig moves the configuration into a named template, because the Deployment
// has its hash.
func (t *templater) takeConfig(configMap map[string]any) {
	data, _ := configMap["data"].(map[string]any)
	for file, text := range data {
		other, _, _ := unstructured.NestedString(t.stranger.Object, "data", file)
		text := strings.ReplaceAll(byImage(text.(string), other), markNamespace, "{{ .Release.Namespace }}")
		t.config = fmt.Sprintf("{{- define %q -}}\n%s{{ end }}\n", configTemplate, text)
		data[file] = t.token("", `include "`+configTemplate+`" .`)
	}
}

// byImage is one text for images called fairlead-scheduler and another one for the rest,
// as v1alpha1.HasPlugins has it. What both begin with is there once.
func byImage(ours, other string) string {
	own, rest := strings.SplitAfter(ours, "\n"), strings.SplitAfter(other, "\n")
	same := 0
	for same < min(len(own), len(rest)) && own[same] == rest[same] {
		same++
	}
	if same == len(own) && same == len(rest) {
		return ours
	}
	name, _ := v1alpha1.ImageName(v1alpha1.DefaultSchedulerImage)
	return fmt.Sprintf("%s{{ if regexMatch \"(^|/)%s([:@]|$)\" .Values.scheduler.image -}}\n%s{{ else -}}\n%s{{ end }}",
		strings.Join(own[:same], ""), name, strings.Join(own[same:], ""), strings.Join(rest[same:], ""))
}

func (t *templater) token(kind, expr string) string {
	t.tokens = append(t.tokens, expr)
	return fmt.Sprintf("TOKEN%s%dX", kind, len(t.tokens)-1)
}

func (t *templater) expr(index string) string {
	var i int
	_, _ = fmt.Sscan(index, &i) // the expressions match digits only
	return t.tokens[i]
}

// quote keeps text text; numbers stay numbers.
func (t *templater) quote(index string) string {
	if strings.HasSuffix(t.expr(index), "| int") {
		return ""
	}
	return " | quote"
}

// block writes a map or list that is a value, and nothing if it is empty; of
// resources an empty map, as the bundle does.
func (t *templater) block(m string) string {
	s := blockToken.FindStringSubmatch(m)
	indent, key := s[1], s[2]
	empty := ""
	if key == "resources" {
		empty = "{{- else }}\n" + indent + key + ": {}\n"
	}
	return fmt.Sprintf("{{- with %s }}\n%s%s:\n%s{{- toYaml . | nindent %d }}\n%s{{- end }}", t.expr(s[3]), indent, key, indent, len(indent)+2, empty)
}
