// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/internal/neterr"
)

// summarized are the conditions that must be True for Ready.
var summarized = []string{v1beta1.BundleReconciled, v1beta1.BundleTunnelAvailable, v1beta1.BundleSchedulerLeading, v1beta1.BundleCertificatesValid}

// stalling are the reasons of Reconciled that no further try cures.
var stalling = []string{v1beta1.ReasonInvalidBundle, v1beta1.ReasonDrift, v1beta1.ReasonBlocked}

// summarize sets Ready, and Stalled or Progressing, from the other conditions.
func summarize(b *v1beta1.Bundle) {
	set := conditions(b)
	reconciled := ptr.Deref(meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled), metav1.Condition{})
	if stalled := slices.Contains(stalling, reconciled.Reason); stalled {
		set(v1beta1.BundleStalled, true, reconciled.Reason, "condition Reconciled says what to change")
	} else {
		set(v1beta1.BundleStalled, false, v1beta1.ReasonAsWanted, "nothing keeps the operator from going on")
	}
	switch reconciled.Reason {
	case v1beta1.ReasonFailed:
		set(v1beta1.BundleProgressing, true, v1beta1.ReasonFailed, "the operator tries again")
	case v1beta1.ReasonWaiting:
		set(v1beta1.BundleProgressing, true, v1beta1.ReasonWaiting, waiting)
	}
	for _, name := range summarized {
		c := meta.FindStatusCondition(b.Status.Conditions, name)
		if c != nil && c.Status == metav1.ConditionTrue {
			continue
		}
		reason := reconciled.Reason
		if c != nil {
			reason = c.Reason
		}
		set(v1beta1.BundleReady, false, reason, "condition "+name+" is not True")
		return
	}
	set(v1beta1.BundleReady, true, v1beta1.ReasonAsWanted, "all conditions are as they should be")
}

// conditions returns a function that sets a condition of a Bundle.
func conditions(b *v1beta1.Bundle) func(name string, ok bool, reason, message string) {
	return setter(&b.Status.Conditions, b.Generation)
}

// setUnknown sets a condition of a Bundle of which the operator cannot tell.
func setUnknown(b *v1beta1.Bundle, name, reason, message string) {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: name, Status: metav1.ConditionUnknown, Reason: reason, Message: message, ObservedGeneration: b.Generation,
	})
}

// setter returns a function that sets one of an object's conditions.
func setter(all *[]metav1.Condition, generation int64) func(name string, ok bool, reason, message string) {
	return func(name string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(all, metav1.Condition{
			Type: name, Status: status, Reason: reason, Message: truncated(neterr.Text(message), 32768), ObservedGeneration: generation,
		})
	}
}

// truncated returns text of n bytes at most, as the API server stores it: JSON replaces bytes that are
// no text, so the status would differ, and be written, at each look.
func truncated(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= n {
		return s
	}
	end := n - len("...")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
