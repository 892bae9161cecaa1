// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// The ConfigMap in kube-system from which "kubeadm upgrade" and "kubeadm join"
// generate kube-apiserver's manifest and certificate.
const (
	KubeadmConfigMap = "kubeadm-config"
	KubeadmKey       = "ClusterConfiguration"
)

// ClusterAdditions holds the items that were added to lists below apiServer, by
// the list's name.
type ClusterAdditions map[string][]any

// Has reports whether a contains all items of other.
func (a ClusterAdditions) Has(other ClusterAdditions) bool {
	for key, items := range other {
		if slices.ContainsFunc(items, func(item any) bool { return !contains(a[key], item) }) {
			return false
		}
	}
	return true
}

// Without returns the items of a that other lacks.
func (a ClusterAdditions) Without(other ClusterAdditions) ClusterAdditions {
	out := ClusterAdditions{}
	for key, items := range a {
		for _, item := range items {
			if !contains(other[key], item) {
				out[key] = append(out[key], item)
			}
		}
	}
	return out
}

var clusterLists = []string{"certSANs", "extraArgs", "extraVolumes"}

// AddToCluster adds the bundle's part to the stored configuration,
// and returns the result and what was added. Comments, order and unknown fields
// stay.
func AddToCluster(text string, b *v1alpha1.Bundle) (string, ClusterAdditions, error) {
	patch, err := apiserver.KubeadmPatch(b)
	if err != nil {
		return "", nil, err
	}
	var want struct {
		APIServer map[string][]any `json:"apiServer"`
	}
	if err := sigsyaml.Unmarshal(patch, &want); err != nil {
		return "", nil, err
	}
	added := ClusterAdditions{}
	out, err := editCluster(text, func(server *yaml.Node) error {
		for _, key := range clusterLists {
			for _, item := range want.APIServer[key] {
				isNew, err := addItem(server, key, item)
				if err != nil {
					return err
				}
				if isNew {
					added[key] = append(added[key], item)
				}
			}
		}
		return nil
	})
	if err != nil || len(added) == 0 {
		return text, nil, err
	}
	return out, added, nil
}

// addItem appends an item to a list of apiServer unless the list has it.
// extraArgs may be a mapping, as in older configurations.
func addItem(server *yaml.Node, key string, item any) (isNew bool, err error) {
	values := child(server, key)
	if values == nil || values.Kind == yaml.ScalarNode {
		if values == nil {
			values = &yaml.Node{}
			server.Content = append(server.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, values)
		}
		*values = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	name, value := named(item)
	if values.Kind == yaml.MappingNode {
		if now := child(values, name); now != nil {
			return false, sameValue(key, name, now.Value, value)
		}
		values.Content = append(values.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value})
		return true, nil
	}
	for _, v := range values.Content {
		if equalsOne(v, []any{item}) {
			return false, nil
		}
		if n := child(v, "name"); n != nil && n.Value == name {
			now := ""
			if v := child(v, "value"); v != nil {
				now = v.Value
			}
			return false, sameValue(key, name, now, value)
		}
	}
	node := &yaml.Node{}
	if err := node.Encode(item); err != nil {
		return false, err
	}
	values.Content = append(values.Content, node)
	return true, nil
}

func named(item any) (name, value string) {
	m, _ := item.(map[string]any)
	name, _ = m["name"].(string)
	value, _ = m["value"].(string)
	return name, value
}

func sameValue(key, name, now, want string) error {
	if now == want && want != "" {
		return nil
	}
	return fmt.Errorf("%w: ConfigMap %s has another %s in apiServer.%s: take it out, or leave the ConfigMap alone with --kubeadm-config=false",
		apiserver.ErrConflict, KubeadmConfigMap, name, key)
}

// RemoveFromCluster removes additions from a text that may have
// changed since.
func RemoveFromCluster(text string, added ClusterAdditions) (string, error) {
	return editCluster(text, func(server *yaml.Node) error {
		for _, key := range clusterLists {
			values := child(server, key)
			if values == nil {
				continue
			}
			for _, item := range added[key] {
				removeItem(values, item)
			}
			if len(values.Content) == 0 && len(added[key]) > 0 {
				i := slices.Index(server.Content, values)
				server.Content = slices.Delete(server.Content, i-1, i+1)
			}
		}
		return nil
	})
}

// ClusterEgress returns the egress selector file in a stored configuration, or "" if that
// has no such argument.
func ClusterEgress(text string) string {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return ""
	}
	args := child(child(document.Content[0], "apiServer"), "extraArgs")
	if file := child(args, apiserver.ConfigFlag); file != nil { // a mapping, as in older configurations
		return file.Value
	}
	if args == nil {
		return ""
	}
	for _, arg := range args.Content {
		if name, value := child(arg, "name"), child(arg, "value"); name != nil && value != nil && name.Value == apiserver.ConfigFlag {
			return value.Value
		}
	}
	return ""
}

func removeItem(values *yaml.Node, item any) {
	if values.Kind == yaml.MappingNode {
		name, value := named(item)
		if now := child(values, name); now != nil && now.Value == value {
			i := slices.Index(values.Content, now)
			values.Content = slices.Delete(values.Content, i-1, i+1)
		}
		return
	}
	values.Content = slices.DeleteFunc(values.Content, func(v *yaml.Node) bool { return equalsOne(v, []any{item}) })
}

func editCluster(text string, edit func(apiServer *yaml.Node) error) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return "", fmt.Errorf("ConfigMap %s: %w", KubeadmConfigMap, err)
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return "", fmt.Errorf("ConfigMap %s holds no %s", KubeadmConfigMap, KubeadmKey)
	}
	root := document.Content[0]
	server := child(root, "apiServer")
	if server == nil {
		server = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "apiServer"}, server)
	}
	server.Style &^= yaml.FlowStyle // kubeadm writes "{}" for an empty mapping
	if err := edit(server); err != nil {
		return "", err
	}
	if len(server.Content) == 0 {
		server.Style |= yaml.FlowStyle
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent() // as kubeadm writes it
	if err := encoder.Encode(&document); err != nil {
		return "", err
	}
	return out.String(), encoder.Close()
}
