// SPDX-License-Identifier: Apache-2.0

package clusterflags

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns the kubeconfig with the flags in its current context, so that a client of that context is the one
// that Load configures. Without a context, the current one has an empty name. Call Load first: it refuses a proxy-url that is
// not valid without its password.
func (f Flags) Kubeconfig() (clientcmdapi.Config, error) {
	loader := f.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return raw, fmt.Errorf("read kubeconfig: %w", err)
	}
	if *f.Context != "" && raw.Contexts[*f.Context] == nil {
		return raw, fmt.Errorf("there is no context %q in the kubeconfig: choose another with --context", *f.Context)
	}
	overrides, err := f.overrides()
	if err != nil {
		return raw, err
	}
	merged, err := clientcmd.NewNonInteractiveClientConfig(raw, *f.Context, overrides, loader.ConfigAccess()).MergedRawConfig()
	if err != nil {
		return raw, fmt.Errorf("use the flags of the cluster: %w", err)
	}
	return merged, nil
}

// overrides are what ToRawKubeConfigLoader keeps for itself. Paths are relative to the working directory, not to
// the kubeconfig.
func (f Flags) overrides() (*clientcmd.ConfigOverrides, error) {
	o := &clientcmd.ConfigOverrides{
		CurrentContext: *f.Context,
		Context:        clientcmdapi.Context{Cluster: *f.ClusterName, AuthInfo: *f.AuthInfoName},
		ClusterInfo: clientcmdapi.Cluster{
			Server: *f.APIServer, TLSServerName: *f.TLSServerName, InsecureSkipTLSVerify: *f.Insecure, DisableCompression: *f.DisableCompression,
		},
		AuthInfo: clientcmdapi.AuthInfo{
			Token: *f.BearerToken, Impersonate: *f.Impersonate, ImpersonateUID: *f.ImpersonateUID, ImpersonateGroups: *f.ImpersonateGroup,
		},
	}
	for _, extra := range *f.ImpersonateUserExtra {
		if key, value, ok := strings.Cut(extra, "="); ok {
			if o.AuthInfo.ImpersonateUserExtra == nil {
				o.AuthInfo.ImpersonateUserExtra = map[string][]string{}
			}
			o.AuthInfo.ImpersonateUserExtra[key] = append(o.AuthInfo.ImpersonateUserExtra[key], value)
		}
	}
	for to, file := range map[*string]string{&o.ClusterInfo.CertificateAuthority: *f.CAFile, &o.AuthInfo.ClientCertificate: *f.CertFile, &o.AuthInfo.ClientKey: *f.KeyFile} {
		if file == "" {
			continue
		}
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, fmt.Errorf("find the file %s: %w", file, err)
		}
		*to = path
	}
	return o, nil
}
