// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// StaticUser is the user of a static Pod's kubeconfig, to whom [Objects] gives the rights.
func StaticUser(b *v1alpha1.Bundle) string { return "fairlead:" + b.Defaulted().Scheduler.Name }

// StaticKubeconfig makes that user's kubeconfig with everything embedded. It must be
// written with mode 0600 before the static Pod appears. ca is the cluster's CA and
// serverURL its API server.
func StaticKubeconfig(b *v1alpha1.Bundle, ca pki.KeyPair, serverURL string, now time.Time) ([]byte, error) {
	user := StaticUser(b)
	client, err := ca.Issue(pki.FromBundle(b), pki.Request{CommonName: user, Usages: pki.ClientAuth}, now)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", user, err)
	}
	return pki.Kubeconfig(pki.KubeconfigRequest{
		Cluster: "kubernetes", Server: serverURL, CA: ca.CertPEM(), User: user, Client: client,
	})
}

// StaticComponent describes the second scheduler for a static Pod, which may use neither
// ServiceAccount nor ConfigMap. The node must hold the configuration at [ConfigPath],
// which is config, made by [Configuration] with the same kubeconfig, and the kubeconfig
// itself, whose user is [StaticUser].
func StaticComponent(b *v1alpha1.Bundle, kubeconfig string, config []byte) component.Component {
	b = b.Defaulted()
	c := Component(b)
	c.ServiceAccount = ""
	// The annotation makes the kubelet restart it when the configuration changes,
	// because it reads its file only once.
	c.PodAnnotations = map[string]string{configHashAnnotation: hash(config)}
	// The kubeconfig is root's, with mode 0600.
	c.PodSecurity = component.RootPod()
	c.Volumes = []component.Volume{
		{Name: configVolume, HostPath: configDir(b), HostPathType: corev1.HostPathDirectory, MountPath: configDir(b), ReadOnly: true},
		{Name: "kubeconfig", HostPath: kubeconfig, HostPathType: corev1.HostPathFile, MountPath: kubeconfig, ReadOnly: true},
	}
	// Without a ServiceAccount there is no other identity for asking the API server
	// about callers of the health and metrics port.
	c.Flags = component.Merge(c.Flags, []component.Flag{
		component.PathFlag("authentication-kubeconfig", kubeconfig),
		component.PathFlag("authorization-kubeconfig", kubeconfig),
	})
	return c
}
