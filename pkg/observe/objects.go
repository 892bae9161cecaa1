// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/internal/parallel"
)

// cached lets the API server answer from memory.
var cached = metav1.ListOptions{ResourceVersion: "0"}

// objects are the sources that need nothing but the API server.
func (c *collector) objects() []source {
	s, core, apps := c.s, c.client.CoreV1(), c.client.AppsV1()
	out := []source{
		into(&s.Ready, c.readyz), into(&s.Version, c.version),
		list(&s.Nodes, "nodes", func(ctx context.Context) (*corev1.NodeList, error) { return core.Nodes().List(ctx, cached) },
			func(l *corev1.NodeList) []corev1.Node { return l.Items }),
		list(&s.Deployments, "Deployments", func(ctx context.Context) (*appsv1.DeploymentList, error) {
			return apps.Deployments("").List(ctx, cached)
		},
			func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items }),
		list(&s.DaemonSets, "DaemonSets", func(ctx context.Context) (*appsv1.DaemonSetList, error) {
			return apps.DaemonSets("").List(ctx, cached)
		},
			func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items }),
		list(&s.Pending, "Pods that are on no node", func(ctx context.Context) (*corev1.PodList, error) {
			return core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		}, func(l *corev1.PodList) []corev1.Pod { return l.Items }),
		into(&s.Authentication, c.authentication), into(&s.ClusterCAs, c.clusterCAs),
		into(&s.TunnelState, c.tunnelState),
	}
	if c.Brief && c.Scheduled != nil {
		s.Scheduled = *c.Scheduled
		return out
	}
	if c.Brief {
		return append(out, into(&s.Scheduled, c.scheduled))
	}
	return append(out, c.moreObjects()...)
}

// moreObjects are for checks alone.
func (c *collector) moreObjects() []source {
	s, core := c.s, c.client.CoreV1()
	hooks, net := c.client.AdmissionregistrationV1(), c.client.NetworkingV1()
	return []source{
		list(&s.NodeLeases, "Leases of nodes", func(ctx context.Context) (*coordinationv1.LeaseList, error) {
			return c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
		}, func(l *coordinationv1.LeaseList) []coordinationv1.Lease { return l.Items }),
		list(&s.PDBs, "PodDisruptionBudgets", func(ctx context.Context) (*policyv1.PodDisruptionBudgetList, error) {
			return c.client.PolicyV1().PodDisruptionBudgets("").List(ctx, cached)
		}, func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items }),
		list(&s.Policies, "NetworkPolicies", func(ctx context.Context) (*networkingv1.NetworkPolicyList, error) {
			return net.NetworkPolicies("").List(ctx, cached)
		},
			func(l *networkingv1.NetworkPolicyList) []networkingv1.NetworkPolicy { return l.Items }),
		list(&s.CSRs, "CertificateSigningRequests", func(ctx context.Context) (*certificatesv1.CertificateSigningRequestList, error) {
			return c.client.CertificatesV1().CertificateSigningRequests().List(ctx, cached)
		}, func(l *certificatesv1.CertificateSigningRequestList) []certificatesv1.CertificateSigningRequest {
			return l.Items
		}),
		list(&s.FlowSchemas, "FlowSchemas", func(ctx context.Context) (*flowcontrolv1.FlowSchemaList, error) {
			return c.client.FlowcontrolV1().FlowSchemas().List(ctx, cached)
		}, func(l *flowcontrolv1.FlowSchemaList) []flowcontrolv1.FlowSchema { return l.Items }),
		list(&s.Accounts, "ServiceAccounts", func(ctx context.Context) (*corev1.ServiceAccountList, error) {
			return core.ServiceAccounts("").List(ctx, cached)
		},
			func(l *corev1.ServiceAccountList) (out []types.NamespacedName) {
				for _, a := range l.Items {
					out = append(out, types.NamespacedName{Namespace: a.Namespace, Name: a.Name})
				}
				return out
			}),
		list(&s.Mutating, "MutatingWebhookConfigurations", func(ctx context.Context) (*admissionregistrationv1.MutatingWebhookConfigurationList, error) {
			return hooks.MutatingWebhookConfigurations().List(ctx, cached)
		}, func(l *admissionregistrationv1.MutatingWebhookConfigurationList) []admissionregistrationv1.MutatingWebhookConfiguration {
			return l.Items
		}),
		list(&s.Validating, "ValidatingWebhookConfigurations", func(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfigurationList, error) {
			return hooks.ValidatingWebhookConfigurations().List(ctx, cached)
		}, func(l *admissionregistrationv1.ValidatingWebhookConfigurationList) []admissionregistrationv1.ValidatingWebhookConfiguration {
			return l.Items
		}),
		into(&s.Configurations, c.configurations), into(&s.APIServices, c.apiServices), into(&s.CRDs, c.crds), into(&s.Denied, c.denied),
	}
}

// answer returns the body, also that of a refusal. Unlike that of DoRaw the error has the message that the API server sent.
func answer(ctx context.Context, r rest.ResponseWrapper) ([]byte, error) {
	body, err := r.DoRaw(ctx)
	var status metav1.Status
	if err != nil && json.Unmarshal(body, &status) == nil && status.Message != "" {
		err = &apierrors.StatusError{ErrStatus: status}
	}
	return body, err
}

// readyz is the list of checks that the API server answers with, ready or not. Any other refusal is an error: it says nothing of readiness.
func (c *collector) readyz(ctx context.Context) (string, error) {
	body, err := answer(ctx, c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", ""))
	if err != nil && !slices.ContainsFunc(strings.Split(string(body), "\n"), func(line string) bool { return strings.HasPrefix(line, "[-]") }) {
		return "", fmt.Errorf("read whether the API server is ready: %w", err)
	}
	return string(body), nil
}

// version does not use ServerVersion, which takes no context.
func (c *collector) version(ctx context.Context) (*version.Info, error) {
	data, err := answer(ctx, c.client.Discovery().RESTClient().Get().AbsPath("/version"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("the API server's version: %w", err)
	}
	return &info, nil
}

// maxCounted is how many Pods are read to count them. More would take seconds each time.
const maxCounted = 5000

// scheduled decodes one field of each Pod, and does not keep the rest.
func (c *collector) scheduled(ctx context.Context) (Scheduled, error) {
	const page = 1000
	out := Scheduled{Pods: map[string]int{}}
	next := ""
	for range maxCounted / page {
		data, err := answer(ctx, c.client.CoreV1().RESTClient().Get().Resource("pods").Param("limit", fmt.Sprint(page)).Param("continue", next).
			Param("fieldSelector", "status.phase!=Succeeded,status.phase!=Failed"))
		if err != nil {
			return out, fmt.Errorf("list Pods: %w", err)
		}
		var l struct {
			Metadata metav1.ListMeta
			Items    []struct {
				Spec struct{ SchedulerName string }
			}
		}
		if err := json.Unmarshal(data, &l); err != nil {
			return out, fmt.Errorf("list Pods: %w", err)
		}
		for _, p := range l.Items {
			out.Pods[p.Spec.SchedulerName]++
		}
		if next = l.Metadata.Continue; next == "" {
			return out, nil
		}
	}
	out.More = true
	return out, nil
}

// leases are those of schedulers and servers, where the bundle has them and where flags of servers say.
func (c *collector) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	b := c.s.Bundle
	spaces := []string{b.Namespace, metav1.NamespaceSystem, b.Scheduler.LeaderElection.LeaseNamespace, b.Konnectivity.LeaseNamespace}
	for _, p := range Of(c.s.Programs.Value, check.RoleServer) {
		spaces = append(spaces, p.Flag("lease-namespace", DefaultLeaseNamespace))
	}
	slices.Sort(spaces)
	var out []coordinationv1.Lease
	for _, space := range slices.Compact(spaces) {
		l, err := c.client.CoordinationV1().Leases(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return out, fmt.Errorf("list Leases in %s: %w", space, err)
		}
		out = append(out, l.Items...)
	}
	return out, nil
}

func (c *collector) authentication(ctx context.Context) (map[string]string, error) {
	m, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the CAs of kube-apiserver: %w", err)
	}
	return m.Data, nil
}

func (c *collector) clusterCAs(ctx context.Context) ([]certificate, error) {
	m, err := c.client.CoreV1().ConfigMaps(c.s.Bundle.Namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	return pki.ParseCerts([]byte(m.Data["ca.crt"]))
}

// raw reads a list of a group whose Go types would be a dependency for a few fields.
func (c *collector) raw(ctx context.Context, path string, out any) error {
	data, err := answer(ctx, c.client.Discovery().RESTClient().Get().AbsPath(path).Param("resourceVersion", "0"))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

func (c *collector) apiServices(ctx context.Context) ([]APIService, error) {
	var l struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Service               *ServiceRef
				CABundle              []byte
				InsecureSkipTLSVerify bool
			}
			Status struct{ Conditions []metav1.Condition }
		}
	}
	if err := c.raw(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", &l); err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	var out []APIService
	for _, i := range l.Items {
		if i.Spec.Service == nil {
			continue // served by kube-apiserver itself
		}
		a := APIService{Name: i.Metadata.Name, Service: i.Spec.Service, CABundle: i.Spec.CABundle, Insecure: i.Spec.InsecureSkipTLSVerify}
		a.Service.Port = portOr443(a.Service.Port)
		for _, cond := range i.Status.Conditions {
			if cond.Type == "Available" {
				a.Available, a.Reason, a.Message = cond.Status == metav1.ConditionTrue, cond.Reason, cond.Message
			}
		}
		out = append(out, a)
	}
	return out, nil
}

func (c *collector) crds(ctx context.Context) ([]CRD, error) {
	var l struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Versions []struct {
					Name            string
					Served, Storage bool
					Schema          json.RawMessage
				}
				Conversion struct {
					Strategy string
					Webhook  struct {
						ClientConfig struct {
							URL      string
							Service  *ServiceRef
							CABundle []byte
						}
					}
				}
			}
			Status struct{ StoredVersions []string }
		}
	}
	if err := c.raw(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &l); err != nil {
		return nil, fmt.Errorf("list CustomResourceDefinitions: %w", err)
	}
	var out []CRD
	for _, i := range l.Items {
		hook := i.Spec.Conversion.Webhook.ClientConfig
		d := CRD{Name: i.Metadata.Name, Stored: i.Status.StoredVersions, Strategy: i.Spec.Conversion.Strategy, URL: hook.URL, Service: hook.Service, CABundle: hook.CABundle}
		if d.Service != nil {
			d.Service.Port = portOr443(d.Service.Port)
		}
		for _, v := range i.Spec.Versions {
			schema := string(v.Schema)
			if len(i.Spec.Versions) > 1 { // one is compared with nothing
				schema = undescribed(v.Schema)
			}
			d.Versions = append(d.Versions, CRDVersion{Name: v.Name, Served: v.Served, Storage: v.Storage, Schema: schema})
		}
		out = append(out, d)
	}
	return out, nil
}

func portOr443(p int32) int32 {
	if p == 0 {
		return 443
	}
	return p
}

// ReadRights are what a complete check reads.
var ReadRights = []string{
	"list nodes", "list pods", "list deployments.apps", "list daemonsets.apps", "list configmaps", "list leases.coordination.k8s.io", "list serviceaccounts", "list events",
	"list poddisruptionbudgets.policy", "list networkpolicies.networking.k8s.io", "list customresourcedefinitions.apiextensions.k8s.io",
	"list apiservices.apiregistration.k8s.io", "list mutatingwebhookconfigurations.admissionregistration.k8s.io",
	"list validatingwebhookconfigurations.admissionregistration.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
	"list certificatesigningrequests.certificates.k8s.io", "list flowschemas.flowcontrol.apiserver.k8s.io", "get configmaps", "get namespaces", "get services", "list endpointslices.discovery.k8s.io", "get pods",
	"get nodes/proxy", "get pods/proxy", "get pods/log", "create pods/portforward",
}

// denied asks which of ReadRights this user lacks.
func (c *collector) denied(ctx context.Context) ([]string, error) {
	allowed, err := parallel.Map(ctx, ReadRights, c.mayI)
	if err != nil {
		return nil, fmt.Errorf("ask for own rights: %w", err)
	}
	var missing []string
	for i, right := range ReadRights {
		if !allowed[i] {
			missing = append(missing, right)
		}
	}
	return missing, nil
}
