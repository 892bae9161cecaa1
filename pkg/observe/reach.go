// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// reach connects once on its own, to see the certificates and the clock of the API server.
func (c *collector) reach(ctx context.Context) (Connection, error) {
	var out Connection
	if err := check.Connect(ctx, &check.Env{Config: c.cfg, Client: c.client}); err != nil {
		return out, err
	}
	client, err := rest.HTTPClientFor(c.cfg)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.cfg.Host, "/")+"/version", nil)
	if err != nil {
		return out, err
	}
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return out, check.Explain(err, c.cfg, time.Now())
	}
	defer resp.Body.Close()
	out.Trip = time.Since(begin)
	if resp.TLS != nil {
		out.Certificates = resp.TLS.PeerCertificates
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds: its middle is the best guess.
		out.Skew = begin.Add(out.Trip / 2).Sub(date.Add(time.Second / 2))
	}
	return out, nil
}

// proxy is what Go's client takes from the environment for this API server.
func (c *collector) proxy(context.Context) (string, error) {
	if c.cfg.Proxy != nil {
		return "", nil // proxy-url of the kubeconfig is there on purpose
	}
	host := c.cfg.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return "", err
	}
	p, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil || p == nil {
		return "", err
	}
	p.User = nil
	return p.String(), nil
}

func (c *collector) clientCert(context.Context) (certificate, error) {
	data := c.cfg.CertData
	if len(data) == 0 && c.cfg.CertFile != "" {
		var err error
		if data, err = os.ReadFile(c.cfg.CertFile); err != nil {
			return nil, err
		}
	}
	if len(data) == 0 {
		return absent[certificate]("the kubeconfig's user has no client certificate")
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("the client certificate of the kubeconfig is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// localPrograms are those that a provider runs as processes.
func (c *collector) localPrograms(ctx context.Context) ([]Program, error) {
	if c.Env == nil || c.Env.Programs == nil {
		return nil, errDown
	}
	list, err := c.Env.Programs(ctx)
	var out []Program
	for _, p := range list {
		out = append(out, Program{Program: p, HostIP: "127.0.0.1"})
	}
	return out, err
}

// programs are processes and Pods: of kube-system, where static Pods are and need no labels, of the bundle's namespace, and those of every
// Deployment and DaemonSet whose template runs one of the programs.
func (c *collector) programs(ctx context.Context) ([]Program, error) {
	var out []Program
	if c.Env != nil && c.Env.Programs != nil {
		local, err := c.localPrograms(ctx)
		if err != nil {
			return nil, err
		}
		out = local
	}
	spaces := []string{metav1.NamespaceSystem, c.s.Names.Namespace}
	for _, d := range c.s.Deployments.Value {
		spaces = append(spaces, c.spaceOf(d.Namespace, &d.Spec.Template)...)
	}
	for _, d := range c.s.DaemonSets.Value {
		spaces = append(spaces, c.spaceOf(d.Namespace, &d.Spec.Template)...)
	}
	slices.Sort(spaces)
	var pods []corev1.Pod
	for _, space := range slices.Compact(spaces) {
		l, err := c.client.CoreV1().Pods(space).List(ctx, cached)
		if err != nil {
			return out, fmt.Errorf("list Pods in %s: %w", space, err)
		}
		pods = append(pods, l.Items...)
	}
	c.s.Pods = Known(pods)
	return append(out, programsOf(pods, c.s.Names)...), nil
}

func (c *collector) spaceOf(namespace string, template *corev1.PodTemplateSpec) []string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: template.Labels}}
	for i := range template.Spec.Containers {
		if roleOf(&template.Spec.Containers[i], pod, c.s.Names) != "" {
			return []string{namespace}
		}
	}
	return nil
}

// apiServers are the arguments of kube-apiservers that a provider or the control plane's Pods show.
func (c *collector) apiServers(ctx context.Context) (map[string][]string, error) {
	if c.Env != nil && c.Env.APIServerArgs != nil {
		return c.Env.APIServerArgs(ctx)
	}
	l, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list Pods of kube-apiserver: %w", err)
	}
	out := map[string][]string{}
	for _, p := range Of(programsOf(l.Items, c.s.Names), check.RoleAPIServer) {
		out[p.Name] = p.Args
	}
	if len(out) == 0 {
		return absent[map[string][]string]("no Pod of kube-apiserver is in %s, so its arguments are unknown", metav1.NamespaceSystem)
	}
	return out, nil
}

// Backends are all Services that the API server calls.
func (s *Snapshot) Backends() []ServiceRef {
	var out []ServiceRef
	add := func(r *ServiceRef) {
		if r != nil && !slices.Contains(out, *r) {
			out = append(out, *r)
		}
	}
	for _, h := range s.Webhooks() {
		add(h.Service)
	}
	for _, a := range s.APIServices.Value {
		add(a.Service)
	}
	for _, d := range s.CRDs.Value {
		add(d.Service)
	}
	return out
}

// services reads what is behind each Service that the API server calls.
func (c *collector) services(ctx context.Context) (map[types.NamespacedName]ServiceState, error) {
	out := map[types.NamespacedName]ServiceState{}
	for _, ref := range c.s.Backends() {
		if _, done := out[ref.Key()]; done {
			continue
		}
		state, err := c.service(ctx, ref)
		if err != nil {
			return out, fmt.Errorf("read Service %s: %w", ref.Key(), err)
		}
		out[ref.Key()] = state
	}
	return out, nil
}

func (c *collector) service(ctx context.Context, ref ServiceRef) (ServiceState, error) {
	var out ServiceState
	core := c.client.CoreV1()
	svc, err := core.Services(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Exists, out.External = true, svc.Spec.Type == corev1.ServiceTypeExternalName
	for _, p := range svc.Spec.Ports {
		out.Ports = append(out.Ports, p.Port)
	}
	slices, err := c.client.DiscoveryV1().EndpointSlices(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + ref.Name})
	if err != nil {
		return out, err
	}
	target := ""
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				out.Ready++
				if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
					target = e.TargetRef.Name
				}
			}
		}
	}
	if target != "" {
		if pod, err := core.Pods(ref.Namespace).Get(ctx, target, metav1.GetOptions{}); err == nil {
			out.PodLabels = pod.Labels
		}
	}
	return out, nil
}
