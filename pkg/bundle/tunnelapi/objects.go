// SPDX-License-Identifier: Apache-2.0

package tunnelapi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	// CASecret is the Secret with the CA that "fairlead install" makes. No Pod mounts it.
	CASecret = v1alpha1.TunnelAPIName + "-ca"
	// ViewerRole is the ClusterRole of users who may read the API.
	ViewerRole = "fairlead-tunnel-viewer"
	// ClientsName names the FlowSchema and the priority level of those who read the API.
	ClientsName = "fairlead-tunnel-api"
)

// Objects are the in-cluster objects of the API server, in the order in which to apply them;
// none if it is not enabled. The Secret with its certificate is not among them, because a
// bundle holds no keys; nor is the APIService, unless the bundle has the CA that verifies the
// certificate.
func Objects(b *v1alpha1.Bundle) ([]component.Object, error) {
	if !Enabled(b) {
		return nil, nil
	}
	b = b.Defaulted()
	objects := append([]component.Object{component.ServiceAccount(meta(b, v1alpha1.TunnelAPIName)), viewerRole()}, bindings(b)...)
	objects = append(objects, service(b), priorityLevel(), clientsSchema(), serverSchema(b))
	objects = append(objects, connectObjects(b)...)
	if ptr.Deref(b.TunnelAPI.Replicas, 1) > 1 {
		objects = append(objects, component.DisruptionBudget(meta(b, v1alpha1.TunnelAPIName), Labels()))
	}
	objects = append(objects, component.Deployment(Component(b)))
	if b.TunnelAPI.CABundle != "" {
		objects = append(objects, APIService(b, []byte(b.TunnelAPI.CABundle)))
	}
	return objects, nil
}

// APIService registers the API. caBundle is the PEM of the CAs that verify the serving certificate.
func APIService(b *v1alpha1.Bundle, caBundle []byte) *apiregistrationv1.APIService {
	out := Request(b).APIService(caBundle)
	out.Labels = Labels()
	return out
}

// CertificateRequest describes the serving certificate.
func CertificateRequest(b *v1alpha1.Bundle) pki.Request {
	host := Request(b).Host()
	return pki.Request{CommonName: host, Usages: pki.ServerAuth, DNSNames: []string{host}}
}

// Secret is a certificate with its key and its CA, as the Pods mount it.
func Secret(b *v1alpha1.Bundle, name string, pair pki.KeyPair, ca []byte) (*corev1.Secret, error) {
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, fmt.Errorf("encode the key of Secret %s: %w", name, err)
	}
	return component.CertificateSecret(meta(b.Defaulted(), name), pair.CertPEM(), key, ca), nil
}

// bindings let the server ask kube-apiserver who its clients are and what they may do.
func bindings(b *v1alpha1.Bundle) []component.Object {
	list := Request(b).Bindings()
	for _, o := range list {
		o.SetLabels(Labels())
	}
	return list
}

// viewerRole lets users read the API; by aggregation, all whom a ClusterRoleBinding gives the ClusterRole view.
func viewerRole() *rbacv1.ClusterRole {
	rule := func(verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{tunnelv1alpha1.SchemeGroupVersion.Group}, Resources: resources, Verbs: verbs}
	}
	role := rbac.ClusterRole(ViewerRole,
		rule([]string{"get", "list", "watch"}, "tunnelagents", "tunnelservers"),
		rule([]string{"get", "list"}, "tunnelconnections"))
	role.Labels = Labels()
	for _, name := range []string{"view", "edit", "admin"} {
		role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name] = "true"
	}
	return role
}

func meta(b *v1alpha1.Bundle, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: b.Namespace, Labels: Labels()}
}

func service(b *v1alpha1.Bundle) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(b, v1alpha1.TunnelAPIName),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: b.TunnelAPI.ClusterIP, Selector: Labels(),
			Ports: []corev1.ServicePort{{
				Name: PortAPI, Protocol: corev1.ProtocolTCP, Port: Request(b).Port, TargetPort: intstr.FromString(PortAPI),
			}},
		},
	}
}

// priorityLevel bounds what clients of the API can take of kube-apiserver: a slow tunnel makes
// their requests slow, and they wait for each other alone.
func priorityLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "PriorityLevelConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ClientsName, Labels: Labels()},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(int32(5)),
				LendablePercent:          ptr.To(int32(90)),
				BorrowingLimitPercent:    ptr.To(int32(0)),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 16, HandSize: 4, QueueLengthLimit: 50},
				},
			},
		},
	}
}

// clientsSchema puts requests for the API into that level. It comes after the schemas of
// Kubernetes' own components and before those that match everyone.
func clientsSchema() *flowcontrolv1.FlowSchema {
	return flowSchema(ClientsName, ClientsName, 1000, flowcontrolv1.PolicyRulesWithSubjects{
		Subjects: []flowcontrolv1.Subject{
			{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:authenticated"}},
			{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:unauthenticated"}},
		},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			APIGroups: []string{tunnelv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
			ClusterScope: true, Namespaces: []string{"*"},
		}},
	})
}

// serverSchema gives the server's own requests, reviews of tokens and access, the level of the control plane's
// components in any namespace: in most, they would wait behind those of ordinary workloads.
func serverSchema(b *v1alpha1.Bundle) *flowcontrolv1.FlowSchema {
	return flowSchema(v1alpha1.TunnelAPIName, "workload-high", 890, flowcontrolv1.PolicyRulesWithSubjects{
		Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: b.Namespace, Name: v1alpha1.TunnelAPIName}}},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
		}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
	})
}

func flowSchema(name, level string, precedence int32, rules flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "FlowSchema"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: Labels()},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{rules},
		},
	}
}
