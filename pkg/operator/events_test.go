// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// TestCertificatesRenewed: the event is for a renewal that succeeded. One that fails again, for another reason, is no
// renewal.
func TestCertificatesRenewed(t *testing.T) {
	for name, tc := range map[string]struct {
		status metav1.ConditionStatus
		reason string
		want   bool
	}{
		"renewed": {metav1.ConditionTrue, v1beta1.ReasonCertificatesValid, true},
		"failed":  {metav1.ConditionFalse, v1beta1.ReasonRenewalFailed, false},
		"expired": {metav1.ConditionFalse, v1beta1.ReasonCertificatesExpired, false},
	} {
		recorder := events.NewFakeRecorder(10)
		condition := func(message string) []metav1.Condition {
			return []metav1.Condition{{Type: v1beta1.BundleCertificatesValid, Status: tc.status, Reason: tc.reason, Message: message}}
		}
		(&BundleReconciler{Events: recorder}).tell(&v1beta1.Bundle{}, condition("one"), condition("another"))
		told := ""
		select {
		case told = <-recorder.Events:
		default:
		}
		if strings.Contains(told, eventCertificatesRenew) != tc.want {
			t.Errorf("%s: event %q", name, told)
		}
	}
}
