// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// An API server reloads its policies about once a second, so a deleted policy continues
// to change Pods for a while.
const (
	// unassignedAnswers consecutive responses must show an unchanged Pod. Behind a load
	// balancer, each may come from another API server.
	unassignedAnswers = 5
	// maxNamespaces is the number of namespaces to try for one that accepts a Pod.
	maxNamespaces = 10
)

// assigned is a Pod that one of the deleted policies assigned to a scheduler.
type assigned struct {
	policy, scheduler string
	namespaces        *metav1.LabelSelector
	labels            map[string]string
}

// assignedName matches the scheduler in a policy's mutation.
var assignedName = regexp.MustCompile(`path: "/spec/schedulerName", value: ("(?:[^"\\]|\\.)*")`)

// assignedBy returns false for a policy that does not assign Pods, or whose selection it
// cannot evaluate.
func assignedBy(u *unstructured.Unstructured) (assigned, bool) {
	var policy admissionregistrationv1.MutatingAdmissionPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &policy); err != nil || policy.Spec.MatchConstraints == nil {
		return assigned{}, false
	}
	a := assigned{policy: policy.Name, namespaces: policy.Spec.MatchConstraints.NamespaceSelector}
	if a.namespaces == nil {
		a.namespaces = &metav1.LabelSelector{} // a nil selector would select nothing
	}
	for _, m := range policy.Spec.Mutations {
		if m.JSONPatch == nil {
			continue
		}
		if found := assignedName.FindStringSubmatch(m.JSONPatch.Expression); found != nil {
			_ = json.Unmarshal([]byte(found[1]), &a.scheduler)
		}
	}
	var selects bool
	a.labels, selects = matchingLabels(policy.Spec.MatchConstraints.ObjectSelector)
	return a, selects && a.scheduler != ""
}

// matchingLabels returns labels that match a selector, and whether it found any.
func matchingLabels(selector *metav1.LabelSelector) (map[string]string, bool) {
	out := map[string]string{}
	if selector == nil {
		return out, true
	}
	for _, e := range selector.MatchExpressions {
		switch {
		case e.Operator == metav1.LabelSelectorOpIn && len(e.Values) > 0:
			out[e.Key] = e.Values[0]
		case e.Operator == metav1.LabelSelectorOpExists:
			out[e.Key] = ""
		}
	}
	maps.Copy(out, selector.MatchLabels)
	s, err := metav1.LabelSelectorAsSelector(selector)
	return out, err == nil && s.Matches(labels.Set(out))
}

// awaitUnassigned waits until the API servers no longer apply the deleted policies among
// these changes: Pods created meanwhile would wait for a scheduler that is about to be
// deleted.
func (c *client) awaitUnassigned(ctx context.Context, changes []change, result *Result, reporter progress.Reporter) error {
	var pods []assigned
	policies := 0
	for _, ch := range changes {
		if ch.Kind != "MutatingAdmissionPolicy" || ch.action != Deleted {
			continue
		}
		policies++
		if a, ok := assignedBy(ch.live); ok {
			pods = append(pods, a)
		}
	}
	if policies == 0 {
		return nil
	}
	reporter.Detail("waiting until the API server no longer applies the deleted admission policies")
	blind := len(pods) < policies
	servers := c.apiServers(ctx)
	for _, a := range pods {
		namespace, err := c.probeNamespace(ctx, a)
		if err != nil {
			return err
		}
		if namespace == "" {
			blind = true
			continue
		}
		for _, s := range servers {
			still, err := s.awaitUnassigned(ctx, c.timing, a, namespace)
			if errors.Is(err, errNotReached) {
				blind = true
				continue
			}
			if err != nil {
				return err
			}
			if still {
				result.Warnings = append(result.Warnings, fmt.Sprintf(
					"%s after the deletion of policy %s the API server still gives new Pods in namespace %s to scheduler %q: another policy or webhook does: see `kubectl get mutatingadmissionpolicies,mutatingwebhookconfigurations`",
					c.timing.unassignedLimit, a.policy, namespace, a.scheduler))
			}
		}
	}
	if blind {
		return sleep(ctx, c.timing.unassignedBlind)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// probeNamespace returns a namespace that the policy selects and that accepts a Pod; ""
// if there is none, or if the user may not list namespaces.
func (c *client) probeNamespace(ctx context.Context, a assigned) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(a.namespaces)
	if err != nil {
		return "", nil //nolint:nilerr // the API server accepted the selector, but this code cannot evaluate it
	}
	list, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: maxNamespaces})
	if err != nil {
		if isAnswer(err) {
			return "", nil
		}
		return "", fmt.Errorf("list the namespaces of policy %s: %w", a.policy, err)
	}
	for _, ns := range list.Items {
		if _, err := dryRunPod(ctx, c.kube, ns.Name, a.labels); err == nil {
			return ns.Name, nil
		}
	}
	return "", nil
}

// dryRunPod returns the scheduler of a Pod as the API server would store it. The
// strictest Pod Security level accepts the Pod.
func dryRunPod(ctx context.Context, kube kubernetes.Interface, namespace string, labels map[string]string) (string, error) {
	pod, err := kube.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fairlead-probe-", Labels: labels},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65534), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "none", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return pod.Spec.SchedulerName, nil
}

// apiServer is one API server, or a load balancer in front of several.
type apiServer struct {
	kube kubernetes.Interface
	// fresh makes the next request open a new connection.
	fresh func()
	// direct means that the server need not be reachable.
	direct bool
}

// apiServers returns the API server of the user's kubeconfig and all that the cluster
// lists.
func (c *client) apiServers(ctx context.Context) []apiServer {
	out := []apiServer{{kube: c.kube, fresh: func() {
		if httpClient, err := rest.HTTPClientFor(c.config); err == nil {
			utilnet.CloseIdleConnectionsFor(httpClient.Transport)
		}
	}}}
	slices, err := c.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return out
	}
	for _, s := range slices.Items {
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				for _, address := range e.Addresses {
					if direct, err := c.directServer(net.JoinHostPort(address, fmt.Sprint(ptr.Deref(p.Port, 443)))); err == nil {
						out = append(out, direct)
					}
				}
			}
		}
	}
	return out
}

var errNotReached = errors.New("the API server cannot be reached from here")

func (c *client) directServer(address string) (apiServer, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.Host, cfg.APIPath, cfg.Timeout = "https://"+address, "", c.timing.direct
	if cfg.TLSClientConfig.ServerName == "" && !cfg.TLSClientConfig.Insecure {
		cfg.TLSClientConfig.ServerName = "kubernetes.default.svc"
	}
	kube, err := kubernetes.NewForConfig(cfg)
	return apiServer{kube: kube, fresh: func() {}, direct: true}, err
}

// awaitUnassigned waits until this server no longer assigns the Pod, and returns whether
// it still does at the limit. The error is errNotReached for a server that cannot be reached
// from here.
func (s apiServer) awaitUnassigned(ctx context.Context, t timing, a assigned, namespace string) (still bool, err error) {
	deadline := time.Now().Add(t.unassignedLimit)
	for unchanged := 0; unchanged < unassignedAnswers; {
		s.fresh()
		name, err := dryRunPod(ctx, s.kube, namespace, a.labels)
		switch {
		case err != nil && s.direct && ctx.Err() == nil:
			return false, errNotReached
		case err != nil && time.Now().After(deadline):
			return false, fmt.Errorf("ask whether new Pods are still given to scheduler %q: %w", a.scheduler, err)
		case err == nil && name != a.scheduler:
			unchanged++
		case time.Now().After(deadline):
			return true, nil
		default:
			unchanged = 0
		}
		if err := sleep(ctx, t.unassigned); err != nil {
			return false, err
		}
	}
	return false, nil
}

// warnOfWaiting adds a warning about Pods that wait for a scheduler among these deleted
// objects: their schedulerName is immutable. It is informational, so it is omitted if
// Pods cannot be listed.
func (c *client) warnOfWaiting(ctx context.Context, changes []change, result *Result) {
	for _, name := range schedulersOf(changes) {
		pods, err := c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,spec.schedulerName=" + name})
		if err != nil || len(pods.Items) == 0 {
			continue
		}
		var some []string
		for i := range pods.Items[:min(len(pods.Items), maxCauses)] {
			some = append(some, pods.Items[i].Namespace+"/"+pods.Items[i].Name)
		}
		if more := len(pods.Items) - len(some); more > 0 {
			some = append(some, fmt.Sprintf("and %d more", more))
		}
		result.Warnings = append(result.Warnings, fmt.Sprintf(
			"%s for scheduler %q, which is deleted (%s): delete them, so that their controllers make new ones, or install a scheduler of that name; list them with `kubectl get pods -A --field-selector spec.nodeName=,spec.schedulerName=%s`",
			waiting(len(pods.Items)), name, strings.Join(some, ", "), name))
	}
}

func waiting(n int) string {
	if n == 1 {
		return "1 Pod waits"
	}
	return fmt.Sprintf("%d Pods wait", n)
}

// schedulersOf returns the profiles in the configurations that are deleted.
func schedulersOf(changes []change) []string {
	var names []string
	for _, ch := range changes {
		if ch.Kind != "ConfigMap" || ch.action != Deleted {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(ch.live.Object, "data")
		for _, text := range data {
			var config schedulerv1.KubeSchedulerConfiguration
			if err := yaml.Unmarshal([]byte(text), &config); err != nil || config.Kind != "KubeSchedulerConfiguration" {
				continue
			}
			for _, p := range config.Profiles {
				if name := ptr.Deref(p.SchedulerName, ""); name != "" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
