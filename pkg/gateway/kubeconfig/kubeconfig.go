// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig writes contexts for ways into a cluster into kubeconfig files, and
// takes them out again.
//
// An [Entry] is one context with its cluster and its user: [ForServer] makes one for a
// proxy that serves the API itself, [Through] one that reaches a context's API server
// through a SOCKS5 or HTTP proxy. [Add] writes it into a file, and [Added.Remove] restores
// the file.
package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

// Entry is a context, and a cluster and a user of the same name.
type Entry struct {
	Name      string
	Namespace string
	Cluster   *clientcmdapi.Cluster
	User      *clientcmdapi.AuthInfo
}

// ForServer is the entry of a proxy that serves the API at a URL. ca in PEM and token are
// empty where the proxy serves plain HTTP: client-go sends no token over that.
func ForServer(name, server, namespace string, ca []byte, token string) Entry {
	return Entry{Name: name, Namespace: namespace,
		Cluster: &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca},
		User:    &clientcmdapi.AuthInfo{Token: token}}
}

// Encode returns a kubeconfig that holds nothing but the entry. It may hold credentials:
// write it with mode 0600.
func (e Entry) Encode() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	e.put(config)
	config.CurrentContext = e.Name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of %s: %w", e.Name, err)
	}
	return data, nil
}

func (e Entry) put(config *clientcmdapi.Config) {
	config.Clusters[e.Name], config.AuthInfos[e.Name] = e.Cluster, e.User
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = e.Name, e.Name, e.Namespace
	config.Contexts[e.Name] = context
}

// Added is an entry in a file.
type Added struct {
	file, name, run string
	// before and after are the file's content; before is nil where there was no file.
	before, after []byte
}

// holdsSecret reports whether an entry has what lets others in.
func (e Entry) holdsSecret() bool {
	if proxy, err := url.Parse(e.Cluster.ProxyURL); err == nil {
		if _, isSet := proxy.User.Password(); isSet {
			return true
		}
	}
	u := e.User
	return u.Token != "" || u.Password != "" || len(u.ClientKeyData) > 0 || u.AuthProvider != nil
}

// checkExposed refuses a file that other users can read, if it is to hold a secret.
func (e Entry) checkExposed(file string) error {
	var exposed *secretfile.ExposedError
	if !e.holdsSecret() {
		return nil
	}
	if _, err := secretfile.Read(file); errors.As(err, &exposed) { // others say what they are when the file is changed
		return fmt.Errorf("adding context %q with a secret to a kubeconfig: %w", e.Name, exposed)
	}
	return nil
}

// Add writes the entry into a kubeconfig file, which need not exist, and leaves its
// current context as it is. It refuses a file that other users can read for an entry with a secret. It replaces an entry of the same name that a killed run has
// left, and refuses to replace any other.
func Add(file string, e Entry) (*Added, error) {
	m := newMark()
	a := &Added{file: file, name: e.Name, run: m.Run}
	e.Cluster = e.Cluster.DeepCopy()
	e.Cluster.Extensions = nil
	err := kubeconfigfile.Change(file, func(old []byte) ([]byte, error) {
		if err := e.checkExposed(file); err != nil {
			return nil, err
		}
		config, err := a.load(old)
		if err != nil {
			return nil, err
		}
		before := marked(config.Clusters[e.Name])
		if before.lives() {
			return nil, fmt.Errorf("adding context %q to kubeconfig %s: process %d, which still runs, has added one of that name: choose another with --context-name", e.Name, file, before.PID)
		}
		left := before.Run != ""
		if !left && has(config, e.Name) {
			return nil, fmt.Errorf("adding context %q to kubeconfig %s: an entry of that name is there: choose another with --context-name", e.Name, file)
		}
		m.Current = config.CurrentContext
		if err := m.put(e.Cluster); err != nil {
			return nil, err
		}
		e.put(config)
		if a.after, err = clientcmd.Write(*config); err != nil {
			return nil, fmt.Errorf("encoding kubeconfig %s: %w", file, err)
		}
		if a.before = old; left || len(old) == 0 && old != nil {
			a.after = nil // the former content must not come back, or cannot be told from none
			return clientcmd.Write(*config)
		}
		return a.after, nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Remove takes the entry out of the file. The file gets its former content, byte for byte, unless another run or program has
// changed it since; then only the entry goes, and comments with it. If the entry is the current context, that which was current
// before it is again. The last of several runs removes a file that the first one has created.
func (a *Added) Remove() error {
	return kubeconfigfile.Change(a.file, func(now []byte) ([]byte, error) {
		if now == nil {
			return nil, nil
		}
		if a.after != nil && bytes.Equal(now, a.after) {
			if a.before == nil {
				return []byte{}, nil
			}
			return a.before, nil
		}
		config, err := a.load(now)
		if err != nil {
			return nil, err
		}
		m := marked(config.Clusters[a.name])
		if m.Run != a.run {
			return nil, nil
		}
		m.Former.Created = m.Former.Created || a.before == nil
		others, err := leave(config, a.name, m)
		switch {
		case err != nil:
			return nil, err
		case others:
			return clientcmd.Write(*config)
		}
		return m.Former.restore(config)
	})
}

func (a *Added) load(data []byte) (*clientcmdapi.Config, error) {
	if data == nil {
		return clientcmdapi.NewConfig(), nil
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w: correct it, or choose another file", a.file, err)
	}
	return config, nil
}

func has(config *clientcmdapi.Config, name string) bool {
	_, isCluster := config.Clusters[name]
	_, isUser := config.AuthInfos[name]
	_, isContext := config.Contexts[name]
	return isCluster || isUser || isContext
}
