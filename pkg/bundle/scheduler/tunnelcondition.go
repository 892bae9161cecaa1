// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// tunnelConditionSuffix follows the scheduler's name in all objects of the
// controller that keeps the nodes' condition TunnelReady.
const tunnelConditionSuffix = "-tunnel-condition"

// The controller serves its probes and metrics here, in the Pod's own network.
const (
	healthPort          = "health"
	tunnelConditionPort = 8095
)

// NeedsTunnelCondition says whether a profile enables TunnelReach, and so
// whether the controller is rendered.
func NeedsTunnelCondition(b *v1alpha1.Bundle) bool {
	return slices.ContainsFunc(Profiles(b.Defaulted()), reaches)
}

func reaches(p schedulerv1.KubeSchedulerProfile) bool {
	return profilecheck.Enables(&p, pluginargs.TunnelReach)
}

// validateReach refuses TunnelReach in a bundle without a tunnel: it would look for
// agents that nothing installs, and with mode Require leave Pods pending for good.
func validateReach(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	if ptr.Deref(b.Konnectivity.Enabled, true) {
		return nil
	}
	const why = "with konnectivity.enabled: false no node ever has a tunnel agent; set that to true, or "
	var errs field.ErrorList
	for i, profile := range Profiles(b) {
		switch {
		case !reaches(profile):
		case i < len(b.Scheduler.Profiles):
			errs = append(errs, field.Forbidden(p.Child("profiles").Index(i).Child("plugins"),
				pluginargs.TunnelReach+" is enabled: "+why+"leave the plugin out"))
		default: // all built-in profiles have it from one field
			return append(errs, field.Invalid(p.Child("plugins", "tunnelReach", "enabled"), true, why+"this to false"))
		}
	}
	return errs
}

// TunnelCondition describes the controller: another command of the scheduler's
// image, with an identity of its own. It may write every node's status, which
// the scheduler does not need.
func TunnelCondition(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	s := &b.Scheduler
	name := s.Name + tunnelConditionSuffix
	agents := konnectivity.Agent(b)
	own := map[string]string{nameLabel: name}
	c := component.Component{
		Name: name, Namespace: b.Namespace, Binary: Binary,
		Labels: own, Selector: own, PodLabels: own,
		ContainerName: "tunnel-condition", Image: s.Image,
		Command: []string{"/usr/local/bin/kube-scheduler", "tunnel-condition"},
		Flags: []component.Flag{
			component.PlainFlag("agent-namespace", agents.Namespace),
			component.PlainFlag("agent-selector", labels.FormatLabels(agents.Selector)),
			component.PlainFlag("health-address", fmt.Sprintf(":%d", tunnelConditionPort)),
		},
		Ports:          []component.Port{{Name: healthPort, Number: tunnelConditionPort}},
		Liveness:       &component.Probe{Port: healthPort, Path: "/livez", Delay: 15},
		Readiness:      &component.Probe{Port: healthPort, Path: "/readyz"},
		ServiceAccount: name,
		PodSecurity:    component.RestrictedPod(), Security: component.RestrictedContainer(),
		PriorityClass: "system-cluster-critical",
		NodeSelector:  s.NodeSelector,
		// No component waits for it. Without it the conditions stay as they are, and
		// count as unknown when they are old.
		Replicas: 1,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}
	if s.Tolerations != nil {
		c.Tolerations = *s.Tolerations
	}
	return c
}

// tunnelConditionObjects are none unless a profile enables TunnelReach.
func tunnelConditionObjects(b *v1alpha1.Bundle) []component.Object {
	if !NeedsTunnelCondition(b) {
		return nil
	}
	c := TunnelCondition(b)
	subject := rbac.ServiceAccount(c.Namespace, c.Name)
	read := []string{"get", "list", "watch"}
	return []component.Object{
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace},
		},
		rbac.ClusterRole(c.Name,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		),
		rbac.ClusterRoleBinding(c.Name, c.Name, subject),
		rbac.Role(c.Namespace, c.Name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read}),
		rbac.RoleBinding(c.Namespace, c.Name, c.Name, subject),
		component.Deployment(c),
	}
}
