// SPDX-License-Identifier: Apache-2.0

// Package manifests edits what kubeadm has written, so that comments, order and unknown
// fields stay: kube-apiserver's manifest (pod.go, text.go) and the stored
// ClusterConfiguration (kubeadm.go). Start at [Add] and [AddToCluster].
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// ErrManifest is returned for a manifest that cannot be read or edited.
var ErrManifest = errors.New("cannot edit kube-apiserver's manifest")

// APIServer is the name of the container, and of the static Pod.
const APIServer = "kube-apiserver"

// Additions records what was added to a manifest, so that exactly this can be
// removed again.
type Additions struct {
	// List is "command" or "args", whichever holds the container's flags.
	List         string               `json:"list,omitempty"`
	Flags        []string             `json:"flags,omitempty"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	Volumes      []corev1.Volume      `json:"volumes,omitempty"`
}

// Empty reports whether nothing was added.
func (a Additions) Empty() bool { return len(a.Flags)+len(a.VolumeMounts)+len(a.Volumes) == 0 }

// Decode reads a manifest as the kubelet does, ignoring unknown fields. It
// refuses duplicate keys, as it is ambiguous which value applies.
func Decode(manifest []byte) (*corev1.Pod, error) {
	if err := oneDocument(manifest); err != nil {
		return nil, err
	}
	raw, err := sigsyaml.YAMLToJSONStrict(manifest)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, err
	}
	if pod.Kind != "Pod" || pod.APIVersion != "v1" {
		return nil, fmt.Errorf("it is %s %s, not a v1 Pod", pod.APIVersion, pod.Kind)
	}
	return pod, nil
}

func oneDocument(manifest []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(manifest))
	for n := 0; ; n++ {
		var node yaml.Node
		if err := decoder.Decode(&node); err != nil {
			if n == 0 {
				return fmt.Errorf("it is not YAML: %w", err)
			}
			return nil // the end, or an error that the strict decoder reports
		}
		if n > 0 {
			return errors.New("it holds several documents, of which the kubelet reads one: keep that one")
		}
	}
}

// Add adds what the bundle needs to kube-apiserver's manifest, and
// returns the result and what was added. It only inserts lines. It is
// idempotent. It fails with [ErrManifest] or apiserver.ErrConflict.
func Add(manifest []byte, b *v1alpha1.Bundle) ([]byte, Additions, error) {
	pod, err := Decode(manifest)
	if err != nil {
		return nil, Additions{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	patched, err := apiserver.PatchPod(pod, b)
	if err != nil {
		return nil, Additions{}, err
	}
	add := Between(pod, patched)
	if add.Empty() {
		return manifest, add, nil
	}
	tree, err := edited(manifest, add, appendAll)
	if err != nil {
		return nil, add, err
	}
	for _, edit := range []editor{insertText, appendNodes} {
		out, err := edit(manifest, add)
		if err != nil || !sameTree(out, tree) {
			continue
		}
		if got, err := Decode(out); err != nil || !reflect.DeepEqual(got, patched) {
			continue
		}
		return out, add, nil
	}
	return nil, add, fmt.Errorf("%w: its YAML is written in a way that cannot be edited safely: write it as kubeadm does", ErrManifest)
}

// Remove removes additions, and the annotation [EgressHash], from a manifest that may
// have been edited since. It ignores additions that are missing or have been changed.
func Remove(manifest []byte, add Additions) ([]byte, error) {
	if _, err := Decode(manifest); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	manifest, err := withoutAnnotation(manifest, EgressHash)
	if err != nil {
		return nil, err
	}
	tree, err := edited(manifest, add, removeAll)
	if err != nil {
		return nil, err
	}
	for _, edit := range []editor{deleteText, removeNodes} {
		if out, err := edit(manifest, add); err == nil && sameTree(out, tree) {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%w: its YAML is written in a way that cannot be edited safely: take out %s by hand",
		ErrManifest, strings.Join(add.Flags, " "))
}

// editor edits the text of a manifest. There are several, tried in order.
type editor func(manifest []byte, add Additions) ([]byte, error)

// Between returns the difference between a Pod before and after PatchPod,
// which only appends.
func Between(before, after *corev1.Pod) Additions {
	i := APIServerIndex(before)
	was, is := before.Spec.Containers[i], after.Spec.Containers[i]
	add := Additions{
		List: "command", Flags: is.Command[len(was.Command):],
		VolumeMounts: is.VolumeMounts[len(was.VolumeMounts):], Volumes: after.Spec.Volumes[len(before.Spec.Volumes):],
	}
	if len(is.Args) > len(was.Args) {
		add.List, add.Flags = "args", is.Args[len(was.Args):]
	}
	return add
}

// APIServerIndex returns the index of kube-apiserver's container, or -1.
func APIServerIndex(pod *corev1.Pod) int {
	return slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == APIServer })
}

// list is one list of the manifest and the items that were added to it, as
// untyped values.
type list struct {
	// inContainer distinguishes lists of the container from lists of the Pod.
	inContainer bool
	key         string
	items       []any
}

func (a Additions) lists() ([]list, error) {
	lists := []list{{true, a.List, nil}, {true, "volumeMounts", nil}, {false, "volumes", nil}}
	for i, items := range []any{a.Flags, a.VolumeMounts, a.Volumes} {
		data, err := json.Marshal(items)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &lists[i].items); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(lists, func(l list) bool { return len(l.items) == 0 }), nil
}

// edited returns the content that a correct edit must produce. It works on
// decoded values and never on text, so it is an independent check of the text
// edits.
func edited(manifest []byte, add Additions, change func(values, items []any) []any) (map[string]any, error) {
	lists, err := add.lists()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := sigsyaml.Unmarshal(manifest, &tree); err != nil {
		return nil, err
	}
	spec, _ := tree["spec"].(map[string]any)
	container := treeContainer(spec)
	if container == nil {
		return nil, fmt.Errorf("%w: it has no container %s", ErrManifest, APIServer)
	}
	for _, l := range lists {
		parent := spec
		if l.inContainer {
			parent = container
		}
		values, _ := parent[l.key].([]any)
		if out := change(values, l.items); len(out) > 0 {
			parent[l.key] = out
		} else {
			delete(parent, l.key)
		}
	}
	return tree, nil
}

func treeContainer(spec map[string]any) map[string]any {
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok && m["name"] == APIServer {
			return m
		}
	}
	return nil
}

func appendAll(values, items []any) []any { return append(slices.Clone(values), items...) }

func removeAll(values, items []any) []any {
	return slices.DeleteFunc(slices.Clone(values), func(v any) bool { return contains(items, v) })
}

func contains(items []any, v any) bool {
	return slices.ContainsFunc(items, func(item any) bool { return reflect.DeepEqual(item, v) })
}

func sameTree(manifest []byte, want map[string]any) bool {
	var got map[string]any
	return sigsyaml.UnmarshalStrict(manifest, &got) == nil && reflect.DeepEqual(got, want)
}

// MountsOf returns the host paths that a Pod mounts.
func MountsOf(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			out = append(out, path.Clean(v.HostPath.Path))
		}
	}
	return out
}

// NamedBy returns the absolute paths in the commands and flags of a Pod's
// containers.
func NamedBy(pod *corev1.Pod) []string {
	var out []string
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if _, value, ok := strings.Cut(arg, "="); ok {
				arg = value
			}
			if path.IsAbs(arg) {
				out = append(out, path.Clean(arg))
			}
		}
	}
	return out
}
