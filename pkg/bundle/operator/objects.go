// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

const (
	// Binary is the base name of the program, and its path in the image.
	Binary = "fairlead-operator"
	// PortWebhook names the port of the conversion webhook.
	PortWebhook = "webhook"
	// PortMetrics names the port of metrics.
	PortMetrics = "metrics"
	// PortHealth names the port of probes.
	PortHealth = "health"

	nameLabel = "app.kubernetes.io/name"
)

// Labels select the operator's Pods.
func Labels() map[string]string { return map[string]string{nameLabel: Name} }

// Objects are the definitions and the operator, in the order in which to apply them.
func Objects(o Options) ([]component.Object, error) {
	o = o.Defaulted()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var objects []component.Object
	if !component.IsBuiltInNamespace(o.Namespace) {
		objects = append(objects, namespace(o))
	}
	definitions, err := Definitions(o)
	if err != nil {
		return nil, err
	}
	for _, d := range definitions {
		objects = append(objects, d)
	}
	granted, err := rights(o)
	if err != nil {
		return nil, err
	}
	objects = append(append(objects, component.ServiceAccount(meta(o))), granted...)
	objects = append(objects, service(o), networkPolicy(o))
	if *o.Replicas > 1 { // the node of a single replica could not be drained
		objects = append(objects, component.DisruptionBudget(meta(o), Labels()))
	}
	return append(objects, component.Deployment(Component(o))), nil
}

// Definitions are the CustomResourceDefinitions of all kinds. Those of two versions name the
// operator's webhook, but not its CA, which the operator adds.
func Definitions(o Options) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	definitions, err := crds.WithWebhook(ClientConfig(o.Defaulted().Namespace, Name, nil))
	if err != nil {
		return nil, fmt.Errorf("render the operator: %w", err)
	}
	for _, d := range definitions {
		d.APIVersion, d.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
	}
	return definitions, nil
}

// Component describes the operator.
func Component(o Options) component.Component {
	o = o.Defaulted()
	return component.Component{
		Name: Name, Namespace: o.Namespace, Binary: Binary,
		Labels: Labels(), Selector: Labels(), PodLabels: Labels(),
		ContainerName: "operator", Image: o.Image,
		Command: []string{"/" + Binary},
		Flags:   Flags(o),
		Ports: []component.Port{
			{Name: PortWebhook, Number: WebhookPort}, {Name: PortMetrics, Number: MetricsPort}, {Name: PortHealth, Number: HealthPort},
		},
		// It starts to answer when the API server serves the definitions.
		Liveness:  &component.Probe{Port: PortHealth, Path: "/healthz", Delay: 15, FailureThreshold: 6},
		Readiness: component.Readiness(component.Probe{Port: PortHealth}),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		Volumes:        []component.Volume{{Name: "api", MountPath: component.APIDir, ReadOnly: true, API: &component.API{TokenSeconds: component.TokenSeconds}}},
		ServiceAccount: Name,
		PodSecurity:    component.RestrictedPod(), Security: component.RestrictedContainer(),
		PriorityClass: "system-cluster-critical",
		Affinity:      component.SpreadHosts(Labels()),
		Replicas:      *o.Replicas,
	}
}

// Flags are all flags of the operator.
func Flags(o Options) []component.Flag {
	o = o.Defaulted()
	address := func(port int32) string { return fmt.Sprintf(":%d", port) }
	return append([]component.Flag{
		component.PlainFlag("namespace", o.Namespace),
		component.BoolFlag("leader-elect", true),
		component.PlainFlag("webhook-service", Name),
		component.PlainFlag("webhook-bind-address", address(WebhookPort)),
		component.PlainFlag("metrics-bind-address", address(MetricsPort)),
		component.PlainFlag("health-probe-bind-address", address(HealthPort)),
	}, o.Bounds.flags()...)
}

func meta(o Options) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: Name, Namespace: o.Namespace, Labels: Labels()}
}

func namespace(o Options) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		},
	}
}

func service(o Options) *corev1.Service {
	port := func(name string, port, target int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(target)}
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(o),
		Spec: corev1.ServiceSpec{
			Selector: Labels(),
			Ports:    []corev1.ServicePort{port(PortWebhook, ServicePort, WebhookPort), port(PortMetrics, MetricsPort, MetricsPort)},
		},
	}
}

// networkPolicy allows the API server, whose calls come from the agents' nodes, probes and
// scrapes. It cannot name their addresses.
func networkPolicy(o Options) *networkingv1.NetworkPolicy {
	var ports []networkingv1.NetworkPolicyPort
	for _, n := range []int32{WebhookPort, MetricsPort, HealthPort} {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(n))})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(o),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: Labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports}},
		},
	}
}
