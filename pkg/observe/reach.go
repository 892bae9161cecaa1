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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// reach connects once on its own, to see the certificates and the clock of the API server. It also returns them with an error if the API server
// answers, but refuses the credentials or shows a certificate that cannot be verified: they may be the cause.
func (c *collector) reach(ctx context.Context) (Connection, error) {
	err := check.Connect(ctx, &check.Env{Config: c.cfg, Client: c.client})
	if err != nil {
		if ctx.Err() != nil {
			return Connection{}, err
		}
		shown, _ := c.connectUnverified(ctx)
		return shown, err
	}
	client, err := rest.HTTPClientFor(c.cfg)
	if err != nil {
		return Connection{}, err
	}
	out, err := connection(ctx, client, c.cfg.Host)
	if err != nil {
		return out, check.Explain(err, c.cfg, time.Now())
	}
	return out, nil
}

// connectUnverified connects without credentials, and verifies nothing.
func (c *collector) connectUnverified(ctx context.Context) (Connection, error) {
	anonymous := rest.AnonymousClientConfig(c.cfg)
	anonymous.TLSClientConfig = rest.TLSClientConfig{Insecure: true, ServerName: c.cfg.ServerName}
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return Connection{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return connection(ctx, client, c.cfg.Host)
}

// connection reads what any answer of a server shows.
func connection(ctx context.Context, client *http.Client, host string) (Connection, error) {
	var out Connection
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(host, "/")+"/version", nil)
	if err != nil {
		return out, err
	}
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	out.Trip = time.Since(begin)
	if resp.TLS != nil {
		out.Certificates = resp.TLS.PeerCertificates
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds: its middle is the best guess.
		out.Skew = begin.Add(out.Trip / 2).Sub(date.Add(time.Second / 2))
		out.Dated = true
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

// found are programs, and all Pods among which those of Pods were found.
type found struct {
	programs []Program
	pods     []corev1.Pod
}

// programs are processes, and Pods in the namespaces of programs.
func (c *collector) programs(ctx context.Context) (found, error) {
	var out found
	if c.Env != nil && c.Env.Programs != nil {
		local, err := c.localPrograms(ctx)
		if err != nil {
			return out, err
		}
		out.programs = local
	}
	for _, space := range c.spaces() {
		l, err := c.client.CoreV1().Pods(space).List(ctx, cached)
		if err != nil {
			return out, fmt.Errorf("list Pods in %s: %w", space, err)
		}
		out.pods = append(out.pods, l.Items...)
	}
	found := programsOf(out.pods, c.s.Names)
	out.programs = append(out.programs, markHosted(found)...)
	return out, nil
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
	out.Targets = targetPorts(svc, slices.Items)
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
			out.PodLabels, out.PodPorts = pod.Labels, namedPorts(pod)
		}
	}
	return out, nil
}

// targetPorts are the ports of Pods behind each port of a Service, which slices have by its name.
func targetPorts(svc *corev1.Service, all []discoveryv1.EndpointSlice) map[int32][]int32 {
	out := map[int32][]int32{}
	for _, port := range svc.Spec.Ports {
		for i := range all {
			for _, p := range all[i].Ports {
				if ptr.Deref(p.Name, "") == port.Name && p.Port != nil && !slices.Contains(out[port.Port], *p.Port) {
					out[port.Port] = append(out[port.Port], *p.Port)
				}
			}
		}
	}
	return out
}

func namedPorts(pod *corev1.Pod) map[string]int32 {
	out := map[string]int32{}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			out[p.Name] = p.ContainerPort
		}
	}
	return out
}
