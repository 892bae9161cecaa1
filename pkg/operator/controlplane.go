// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// controlPlane reports whether API servers use the tunnel. The operator changes nothing there, and does not
// see API servers that run outside of the cluster.
func (r *BundleReconciler) controlPlane(ctx context.Context, b *v1beta1.Bundle, wanted *config.Bundle) error {
	set := conditions(b)
	if !ptr.Deref(wanted.Konnectivity.Enabled, true) {
		set(v1beta1.BundleControlPlaneReady, true, v1beta1.ReasonDisabled, "the bundle has no tunnel")
		return nil
	}
	seen, findings, err := install.ControlPlane(ctx, r.Config, wanted)
	switch {
	case err != nil:
		return err
	case seen == 0:
		setUnknown(b, v1beta1.BundleControlPlaneReady, v1beta1.ReasonNotVisible, "no Pod of kube-apiserver is visible in namespace "+metav1.NamespaceSystem)
	case len(findings) == 0:
		set(v1beta1.BundleControlPlaneReady, true, v1beta1.ReasonConfigured, fmt.Sprintf("all %d API servers use the tunnel", seen))
	default:
		reason := v1beta1.ReasonNoEgressSelector
		if findings[0].ID == install.FindingCount {
			reason = v1beta1.ReasonServerCount
		}
		set(v1beta1.BundleControlPlaneReady, false, reason, findings[0].String())
	}
	return nil
}
