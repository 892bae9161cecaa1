// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Workload is a Deployment or DaemonSet that runs one of the programs, whether it has Pods or not.
type Workload struct {
	Kind, Namespace, Name string
	Template              *corev1.PodTemplateSpec
	// Desired is how many Pods it should have, Current how many exist.
	Desired, Current int32
	// Refusal is why the API server refused its last Pod, as its controller reports it; empty if that is unknown.
	Refusal string
}

// Object names it for people.
func (w Workload) Object() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Workloads are those of this cluster whose template runs a program of this role.
func (s *Snapshot) Workloads(role check.Role) []Workload {
	var out []Workload
	hosted := s.hosted()
	for i := range s.DaemonSets.Value {
		d := &s.DaemonSets.Value[i]
		if !slices.Contains(hosted, d.Namespace) && s.runs(d.Namespace, &d.Spec.Template, role) {
			w := Workload{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name, Template: &d.Spec.Template,
				Desired: d.Status.DesiredNumberScheduled, Current: d.Status.CurrentNumberScheduled}
			w.Refusal = s.refusal(w)
			out = append(out, w)
		}
	}
	for i := range s.Deployments.Value {
		d := &s.Deployments.Value[i]
		if !slices.Contains(hosted, d.Namespace) && s.runs(d.Namespace, &d.Spec.Template, role) {
			w := Workload{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, Template: &d.Spec.Template,
				Desired: ptr.Deref(d.Spec.Replicas, 1), Current: d.Status.Replicas}
			if w.Refusal = replicaFailure(d); w.Refusal == "" {
				w.Refusal = s.refusal(w)
			}
			out = append(out, w)
		}
	}
	return out
}

// runs reports whether Pods of a template run a program of this role; any role if it is empty.
func (s *Snapshot) runs(namespace string, template *corev1.PodTemplateSpec, role check.Role) bool {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: template.Labels}}
	for i := range template.Spec.Containers {
		if found := roleOf(&template.Spec.Containers[i], pod, s.Names); found != "" && (role == "" || found == role) {
			return true
		}
	}
	return false
}

// replicaFailure is what the controller of Deployments copies from its ReplicaSet.
func replicaFailure(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// refusal is the message of the latest event of a Pod that could not be created.
func (s *Snapshot) refusal(w Workload) string {
	var last *corev1.Event
	for i := range s.Refusals.Value {
		e := &s.Refusals.Value[i]
		of := e.InvolvedObject
		same := of.Kind == w.Kind && of.Name == w.Name
		if w.Kind == "Deployment" { // its ReplicaSet has a hash at the end of its name
			at := strings.LastIndex(of.Name, "-")
			same = of.Kind == "ReplicaSet" && at > 0 && of.Name[:at] == w.Name
		}
		if same && of.Namespace == w.Namespace && (last == nil || eventTime(last).Before(eventTime(e))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return last.Message
}

func eventTime(e *corev1.Event) *metav1.Time {
	if e.LastTimestamp.IsZero() {
		return &metav1.Time{Time: e.EventTime.Time}
	}
	return &e.LastTimestamp
}

// maxRefusals is how many events of a namespace are read, refusalsPage how many at once.
const (
	maxRefusals  = 5000
	refusalsPage = 500
)

// refusals are events of Pods that could not be created, in the namespaces of the programs: those of another namespace must not fill the list.
func (c *collector) refusals(ctx context.Context) ([]corev1.Event, error) {
	var out []corev1.Event
	for _, space := range c.spaces() {
		options := metav1.ListOptions{FieldSelector: "reason=FailedCreate", Limit: refusalsPage}
		for read := 0; read < maxRefusals; read += refusalsPage {
			l, err := c.client.CoreV1().Events(space).List(ctx, options)
			if err != nil {
				return out, fmt.Errorf("list events in %s: %w", space, err)
			}
			out = append(out, l.Items...)
			if options.Continue = l.Continue; l.Continue == "" {
				break
			}
		}
	}
	return out, nil
}

// spaces are the namespaces of programs: kube-system, where static Pods are and need no labels, the bundle's, and those of every Deployment and
// DaemonSet whose template runs one of the programs.
func (c *collector) spaces() []string {
	out := []string{metav1.NamespaceSystem, c.s.Names.Namespace}
	for i := range c.s.Deployments.Value {
		if d := &c.s.Deployments.Value[i]; c.s.runs(d.Namespace, &d.Spec.Template, "") {
			out = append(out, d.Namespace)
		}
	}
	for i := range c.s.DaemonSets.Value {
		if d := &c.s.DaemonSets.Value[i]; c.s.runs(d.Namespace, &d.Spec.Template, "") {
			out = append(out, d.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
