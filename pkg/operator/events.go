// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

const (
	// maxEvents of one run tell about single objects; one more counts the rest.
	maxEvents = 64
	// maxNote is what an Event's note may have at most.
	maxNote = 1000
)

// Actions and reasons of events that are not conditions.
const (
	actionApply            = "Apply"
	actionObserve          = "Observe"
	actionUninstall        = "Uninstall"
	eventChanged           = "Changed"
	eventCertificatesRenew = "CertificatesRenewed"
	eventUninstalled       = "Uninstalled"
)

func (r *BundleReconciler) event(b *v1beta1.Bundle, kind, reason, action, note string) {
	if r.Events != nil {
		r.Events.Eventf(b, nil, kind, reason, action, "%s", truncated(note, maxNote))
	}
}

// related is an object as an event refers to it. Events that differ in their notes alone would
// be counted as one.
func related(ref install.Ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	return u
}

// changed tells of each object that was written.
func (r *BundleReconciler) changed(b *v1beta1.Bundle, result *install.Result, action string) {
	told, more := 0, 0
	for _, o := range result.Objects {
		switch {
		case o.Action == install.Unchanged:
		case told == maxEvents:
			more++
		default:
			told++
			if r.Events != nil {
				note := fmt.Sprintf("%s %s", o.Ref, o.Action)
				if o.Note != "" {
					note += ": " + o.Note
				}
				r.Events.Eventf(b, related(o.Ref), corev1.EventTypeNormal, eventChanged, action, "%s", truncated(note, maxNote))
			}
		}
	}
	if more > 0 {
		r.event(b, corev1.EventTypeNormal, eventChanged, action, fmt.Sprintf("%d more objects were written", more))
	}
}

// abnormal are the conditions that are True when something is wrong or unfinished.
var abnormal = []string{v1beta1.BundleStalled, v1beta1.BundleProgressing}

// quiet are the conditions without events: others say the same, or they come and go.
var quiet = []string{v1beta1.BundleStalled, v1beta1.BundleProgressing, v1beta1.BundleReady}

// tell tells of conditions that have become other ones.
func (r *BundleReconciler) tell(b *v1beta1.Bundle, before, after []metav1.Condition) {
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		same := old != nil && old.Status == c.Status && old.Reason == c.Reason
		switch {
		case same && c.Type == v1beta1.BundleCertificatesValid && c.Status == metav1.ConditionTrue && old.Message != c.Message:
			r.event(b, corev1.EventTypeNormal, eventCertificatesRenew, actionObserve, c.Message)
		case same || slices.Contains(quiet, c.Type) || c.Reason == v1beta1.ReasonWaiting:
		case c.Status == metav1.ConditionUnknown && c.Reason == v1beta1.ReasonInvalidBundle: // Reconciled says why
		case (c.Status == metav1.ConditionTrue) == slices.Contains(abnormal, c.Type):
			r.event(b, corev1.EventTypeWarning, c.Reason, actionObserve, c.Type+": "+c.Message)
		case old != nil:
			r.event(b, corev1.EventTypeNormal, c.Reason, actionObserve, c.Type+": "+c.Message)
		}
	}
}
