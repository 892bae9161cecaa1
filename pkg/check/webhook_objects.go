// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

const (
	hookService  = "verify"
	hookPortName = "https"
	hookPort     = 443
)

// hook is the check's own server together with a Service that leads to it.
type hook struct {
	*hookServer
	namespace *corev1.Namespace
}

// startHook serves on this machine and makes a Service without selector that leads here.
func (s *Scope) startHook(ctx context.Context) (*hook, error) {
	if s.HostIP == "" {
		return nil, WithHint(errors.New("this machine has only loopback addresses, and a Service's endpoint must not be loopback"),
			"set --webhook-address to an address of this machine that the agents can reach")
	}
	ns, err := s.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	server, err := startHookServer(ctx, fmt.Sprintf("%s.%s.svc", hookService, ns.Name), s.HostIP, s.HostPort)
	if err != nil {
		return nil, err
	}
	s.Defer("stop the check's webhook server", func(context.Context) error { return server.Close() })
	h := &hook{hookServer: server, namespace: ns}
	if err := s.createHookService(ctx, h); err != nil {
		return nil, err
	}
	s.Detail("address", "%s:%d", s.HostIP, h.port)
	return h, nil
}

func (s *Scope) createHookService(ctx context.Context, h *hook) error {
	ns := h.namespace.Name
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: hookService},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: hookPortName, Port: hookPort}}},
	}
	if _, err := s.Client.CoreV1().Services(ns).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service: %w", err)
	}
	family := discoveryv1.AddressTypeIPv4
	if net.IsIPv6String(s.HostIP) {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: hookService, Labels: map[string]string{discoveryv1.LabelServiceName: hookService, discoveryv1.LabelManagedBy: "fairlead-verify"}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(hookPortName), Port: ptr.To(h.port), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{s.HostIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if _, err := s.Client.DiscoveryV1().EndpointSlices(ns).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return WithHint(fmt.Errorf("create EndpointSlice for %s: %w", s.HostIP, err), "set --webhook-address to another address of this machine that the agents can reach")
	}
	return nil
}

// standInPod makes the Service reachable through the API server's Service proxy, which reads Endpoints (not EndpointSlices) and only goes to
// addresses of pods in the Service's namespace, as the gateway does. The pod names a scheduler that does not exist, so it never runs; its status
// says that it has this machine's address.
func (s *Scope) standInPod(ctx context.Context, h *hook) error {
	pod, err := s.createPod(ctx, newPod("stand-in", "fairlead-verify-none", corev1.Container{Name: "none", Image: s.Probe.PauseImage}))
	if err != nil {
		return err
	}
	pod.Status.PodIP = s.HostIP
	pod.Status.PodIPs = []corev1.PodIP{{IP: s.HostIP}}
	if pod, err = s.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set this machine's address on the stand-in pod: %w", err)
	}
	//nolint:staticcheck // deprecated, but the Service proxy reads nothing else
	endpoints := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: hookService, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: s.HostIP, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}},
			Ports:     []corev1.EndpointPort{{Name: hookPortName, Port: h.port}},
		}},
	}
	_, err = s.Client.CoreV1().Endpoints(pod.Namespace).Create(ctx, endpoints, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Endpoints for %s: %w", s.HostIP, err)
	}
	return nil
}

// serviceProxyEcho asks the check's own server for a random word through the API server's Service proxy.
func (s *Scope) serviceProxyEcho(ctx context.Context, h *hook) error {
	word := randomText(24)
	got, err := rawAnswer(ctx, s.Client.CoreV1().Services(h.namespace.Name).ProxyGet("https", hookService, hookPortName, "echo", map[string]string{"msg": word}))
	if err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("requested %q, got %.100q", word, got)
	}
	return nil
}

// registerHook makes the API server ask the check's server about ConfigMaps of the check's namespace, and of no other.
func (s *Scope) registerHook(ctx context.Context, h *hook) error {
	name := h.namespace.Name
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{LabelCheck: s.id},
			// Should this process die, the garbage collector takes it away with the namespace.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: name, UID: h.namespace.UID}},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "verify.fairlead.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				CABundle: h.caPEM,
				Service:  &admissionregistrationv1.ServiceReference{Namespace: name, Name: hookService, Path: ptr.To("/validate"), Port: ptr.To(int32(hookPort))},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{LabelCheck: s.id}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          ptr.To(int32(10)),
		}},
	}
	hooks := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	s.Defer("delete webhook "+name, func(ctx context.Context) error {
		return ignoreNotFound(hooks.Delete(ctx, name, metav1.DeleteOptions{}))
	})
	if _, err := hooks.Create(ctx, config, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register the check's webhook: %w", err)
	}
	return s.waitHookActive(ctx, h)
}

// settledCalls is how many calls of the webhook have to succeed in a row before it counts as active.
const settledCalls = 5

// waitHookActive waits until the API server has noticed the registration and every node knows the Service. Until then the API
// server admits everything without asking, or its call fails: kube-proxy on the node of one agent may know the Service a moment
// later than on the node of another one, and what an agent sends to a ClusterIP that its node does not know leaves the cluster.
func (s *Scope) waitHookActive(ctx context.Context, h *hook) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	inARow := 0
	err := waitFor(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		for ; inARow < settledCalls; inARow++ {
			if err := s.hookDenies(ctx, h); err != nil {
				inARow = 0
				return err
			}
		}
		return nil
	})
	if err != nil {
		return WithHint(err, "%s", callHint(err))
	}
	return nil
}
