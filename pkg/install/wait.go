// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// RolloutError says which workload is not rolled out, and why.
type RolloutError struct {
	Object Ref
	// State is the progress: "1 of 2 replicas are updated".
	State string
	// Causes lists what is wrong with its Pods.
	Causes []string
	// Err is what ended the wait.
	Err error
}

func (e *RolloutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is not rolled out: %s (%v)", e.Object, e.State, e.Err)
	for _, c := range e.Causes {
		b.WriteString("\n" + c)
	}
	if len(e.Causes) == 0 {
		b.WriteString("\nits Pods report no cause: check that kube-controller-manager and the node's kubelet run")
	}
	b.WriteString("\nall objects are applied; `fairlead install` again waits on")
	return b.String()
}

func (e *RolloutError) Unwrap() error { return e.Err }

// errFailed ends the wait for a workload that cannot recover by itself.
var errFailed = errors.New("it has failed")

// workload is the part of a rollout that both kinds have in common.
type workload struct {
	ref      Ref
	selector *metav1.LabelSelector
	template *corev1.PodTemplateSpec
	// done means that the rollout is complete; failed means that waiting is
	// pointless.
	done, failed bool
	state        string
	conditions   []string
}

// waitRollouts waits for all workloads, one after the other.
func (c *client) waitRollouts(ctx context.Context, manifests []*unstructured.Unstructured, o Options) error {
	for _, m := range manifests {
		r := RefOf(m)
		if r.gvk().Group != appsv1.GroupName {
			continue
		}
		err := progress.Step(o.Progress, "Waiting for "+r.String(), func() (string, error) { return c.waitRollout(ctx, r, o.Progress) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *client) waitRollout(ctx context.Context, r Ref, reporter progress.Reporter) (string, error) {
	var last workload
	var causes []string
	for {
		w, err := c.workload(ctx, r)
		if err == nil {
			last = w
		}
		if last.done {
			return last.state, nil
		}
		if err == nil {
			causes = append(last.conditions, c.podCauses(ctx, last)...)
			reporter.Detail("%s", detail(last, causes))
		}
		switch {
		case last.failed:
			return "", &RolloutError{Object: r, State: last.state, Causes: causes, Err: errFailed}
		case err == nil && c.refusedForGood(ctx, last, causes):
			return "", &RolloutError{Object: r, State: last.state, Causes: causes, Err: errRefused}
		case err != nil && ctx.Err() == nil && isAnswer(err):
			return "", &RolloutError{Object: r, State: "it cannot be read", Err: err}
		}
		select {
		case <-ctx.Done():
			return "", &RolloutError{Object: r, State: last.state, Causes: causes, Err: context.Cause(ctx)}
		case <-time.After(c.timing.poll):
		}
	}
}

func detail(w workload, causes []string) string {
	if len(causes) == 0 {
		return w.state
	}
	first, _, _ := strings.Cut(causes[0], "\n")
	return w.state + "; " + first
}

// workload reads the progress of a rollout.
func (c *client) workload(ctx context.Context, r Ref) (workload, error) {
	w := workload{ref: r}
	switch r.Kind {
	case "Deployment":
		d, err := c.kube.AppsV1().Deployments(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return w, err
		}
		return deploymentState(w, d), nil
	case "DaemonSet":
		d, err := c.kube.AppsV1().DaemonSets(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return w, err
		}
		return daemonSetState(w, d), nil
	}
	w.done, w.state = true, "not waited for"
	return w, nil
}

// notSeen is the state before a controller has observed the object.
const notSeen = "its controller has not seen it yet"

// deploymentState follows kubectl rollout status.
func deploymentState(w workload, d *appsv1.Deployment) workload {
	w.selector, w.template = d.Spec.Selector, &d.Spec.Template
	want, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
	for _, cond := range s.Conditions {
		switch {
		case cond.Type == appsv1.DeploymentProgressing && cond.Reason == "ProgressDeadlineExceeded":
			w.failed = s.ObservedGeneration >= d.Generation
			w.conditions = append(w.conditions, cond.Message)
		case cond.Type == appsv1.DeploymentReplicaFailure && cond.Status == corev1.ConditionTrue:
			w.conditions = append(w.conditions, cond.Message)
		}
	}
	switch {
	case s.ObservedGeneration < d.Generation:
		w.state = notSeen
	case s.UpdatedReplicas < want:
		w.state = fmt.Sprintf("%d of %d replicas are updated", s.UpdatedReplicas, want)
	case s.Replicas > s.UpdatedReplicas:
		w.state = fmt.Sprintf("%d old replicas have not ended", s.Replicas-s.UpdatedReplicas)
	case s.AvailableReplicas < s.UpdatedReplicas:
		w.state = fmt.Sprintf("%d of %d replicas are ready", s.AvailableReplicas, want)
	default:
		w.done, w.failed, w.state = true, false, progress.Count(int(want), "replica")
	}
	return w
}

func daemonSetState(w workload, d *appsv1.DaemonSet) workload {
	w.selector, w.template = d.Spec.Selector, &d.Spec.Template
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		w.state = notSeen
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		w.state = fmt.Sprintf("%d of %d nodes have an updated Pod", s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
	case s.NumberAvailable < s.DesiredNumberScheduled:
		w.state = fmt.Sprintf("%d of %d nodes have a ready Pod", s.NumberAvailable, s.DesiredNumberScheduled)
	case s.DesiredNumberScheduled == 0:
		w.done, w.state = true, "no node matches"
	default:
		w.done, w.state = true, progress.Count(int(s.DesiredNumberScheduled), "node")
	}
	return w
}
