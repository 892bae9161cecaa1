// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxFormer is the size of a file, in bytes, that one run leaves to another one at most.
const maxFormer = 1 << 20

// former is what a file was before runs have added their entries. A run that ends leaves it to those that go on, in their
// marks, so that the last one restores the file.
type former struct {
	// Content is the file's content, and Created means that there was no file. Neither is set if it is not known.
	Content []byte `json:"content,omitempty"`
	Created bool   `json:"created,omitempty"`
}

func (f former) known() bool { return f.Created || len(f.Content) > 0 }

// formerOf returns the content as a former one, unless it has entries of other runs: these must not come back.
func formerOf(content []byte) (f former) {
	if content == nil {
		return former{Created: true}
	}
	config, err := clientcmd.Load(content)
	if err != nil || len(content) > maxFormer {
		return f
	}
	for _, c := range config.Clusters {
		if marked(c).Run != "" {
			return f
		}
	}
	return former{Content: content}
}

// restore returns the former content if the configuration means the same, or else the configuration.
func (f former) restore(now *clientcmdapi.Config) ([]byte, error) {
	data, err := clientcmd.Write(*now)
	if err != nil || !f.known() {
		return data, err
	}
	before := clientcmdapi.NewConfig()
	if !f.Created {
		if before, err = clientcmd.Load(f.Content); err != nil {
			return data, nil //nolint:nilerr // it is what another program has written
		}
	}
	same, err := clientcmd.Write(*before)
	switch {
	case err != nil || !bytes.Equal(data, same):
		return data, nil //nolint:nilerr // the entry goes in any case
	case f.Created:
		return []byte{}, nil
	}
	return f.Content, nil
}

// leave takes a run's entry out of a configuration. It gives what the run knows to other runs that go on, and reports whether there are any.
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
		if m.Former.known() {
			other.Former = m.Former
		}
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
