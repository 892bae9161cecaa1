// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// kubeletCA warns if kube-apiserver accepts any certificate as a kubelet's, because every agent is between the two. It does not fail,
// because the tunnel works and kubeadm's defaults create such clusters.
func kubeletCA(ctx context.Context, s *Scope) error {
	look := s.APIServerArgs
	if look == nil {
		look = s.staticPodArgs
	}
	servers, err := look(ctx)
	if err != nil {
		return fmt.Errorf("find the arguments of kube-apiserver: %w", err)
	}
	if len(servers) == 0 {
		return Skip("no Pod of kube-apiserver is in %s, so its arguments are unknown: ask the administrator of the control plane whether --%s is set",
			metav1.NamespaceSystem, apiserver.KubeletCAFlag)
	}
	var without []string
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if !apiserver.VerifiesKubelets(servers[name]) {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		s.Warn("%s: %s", strings.Join(without, ", "), apiserver.UnverifiedKubelets)
	}
	return nil
}

// staticPodArgs are the arguments of the API servers that kubelets run as static Pods.
func (s *Scope) staticPodArgs(ctx context.Context) (map[string][]string, error) {
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver"})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, pod := range pods.Items {
		if pod.Labels["component"] != "kube-apiserver" {
			continue
		}
		for _, c := range pod.Spec.Containers {
			if c.Name == "kube-apiserver" {
				out[pod.Name] = slices.Concat(c.Command, c.Args)
			}
		}
	}
	return out, nil
}

// authenticationConfigMap is where kube-apiserver publishes its CAs for extension API servers.
const authenticationConfigMap = "extension-apiserver-authentication"

// frontProxyCA fails where one CA signs both client certificates and front proxies: a client certificate can then impersonate everybody.
func frontProxyCA(ctx context.Context, s *Scope) error {
	cm, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return Skip("ConfigMap %s/%s cannot be read: %v", metav1.NamespaceSystem, authenticationConfigMap, err)
	}
	if err != nil {
		return fmt.Errorf("read the CAs of kube-apiserver: %w", err)
	}
	const clientKey, headerKey = "client-ca-file", "requestheader-client-ca-file"
	for _, key := range []string{clientKey, headerKey} {
		if cm.Data[key] == "" {
			return Skip("kube-apiserver has no %s: ConfigMap %s/%s lacks it", key, cm.Namespace, cm.Name)
		}
	}
	clients, err := pki.ParseCerts([]byte(cm.Data[clientKey]))
	if err != nil {
		return fmt.Errorf("ConfigMap %s, %s: %w", cm.Name, clientKey, err)
	}
	headers, err := pki.ParseCerts([]byte(cm.Data[headerKey]))
	if err != nil {
		return fmt.Errorf("ConfigMap %s, %s: %w", cm.Name, headerKey, err)
	}
	return pki.VerifyDistinctCAs(clients, headers)
}
