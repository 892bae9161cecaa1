// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// former is what a run that ends tells those that go on about the file, in their marks. It has nothing of the content, which may hold
// credentials: `kubectl config view` shows marks as they are.
type former struct {
	// Created means that there was no file before the runs.
	Created bool `json:"created,omitempty"`
}

// restore returns the configuration, or no content if there was no file before and nothing is left.
func (f former) restore(now *clientcmdapi.Config) ([]byte, error) {
	data, err := clientcmd.Write(*now)
	if err != nil || !f.Created {
		return data, err
	}
	empty, err := clientcmd.Write(*clientcmdapi.NewConfig())
	if err != nil || bytes.Equal(data, empty) {
		return []byte{}, err
	}
	return data, nil
}

// leave takes a run's entry out of a configuration. It tells other runs that go on what the run knows, and reports whether there are any.
func leave(config *clientcmdapi.Config, name string, m mark) (others bool, err error) {
	delete(config.Clusters, name)
	delete(config.AuthInfos, name)
	delete(config.Contexts, name)
	if config.CurrentContext == name {
		config.CurrentContext = m.Current
		if config.Contexts[m.Current] == nil {
			config.CurrentContext = ""
		}
	}
	for _, c := range config.Clusters {
		other := marked(c)
		if !other.lives() {
			continue
		}
		others = true
		if other.Current == name {
			other.Current = m.Current
		}
		other.Former.Created = other.Former.Created || m.Former.Created
		if err := other.put(c); err != nil {
			return others, err
		}
	}
	return others, nil
}

// put marks a cluster.
func (m mark) put(c *clientcmdapi.Cluster) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if c.Extensions == nil {
		c.Extensions = map[string]runtime.Object{}
	}
	c.Extensions[extension] = &runtime.Unknown{Raw: value, ContentType: runtime.ContentTypeJSON}
	return nil
}
