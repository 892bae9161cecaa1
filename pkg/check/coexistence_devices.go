// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// noDeviceTwice finds devices that are allocated to two claims. Each scheduler keeps in
// memory what it allocates, so two of them may choose the same device at the same
// moment, and neither the API server nor a kubelet corrects that.
func (s *Scope) noDeviceTwice(ctx context.Context) error {
	claims, err := s.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		s.Detail("devices", "not checked: %v", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	owners := map[string][]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		for _, device := range exclusiveDevices(claim) {
			if name := claim.Namespace + "/" + claim.Name; !slices.Contains(owners[device], name) {
				owners[device] = append(owners[device], name)
			}
		}
	}
	var twice []string
	for device, names := range owners {
		if len(names) > 1 {
			slices.Sort(names)
			twice = append(twice, fmt.Sprintf("device %s is allocated to the claims %s", device, strings.Join(names, ", ")))
		}
	}
	s.Detail("devices", "%d allocated", len(owners))
	if len(twice) == 0 {
		return nil
	}
	slices.Sort(twice)
	return WithHint(fmt.Errorf("two schedulers allocated the same device: %s", strings.Join(twice, "; ")),
		"delete the Pods of all claims but one; let one scheduler serve all Pods that claim devices of a driver: docs/scheduler-profiles.md")
}

// exclusiveDevices are those that a claim has for itself. Administrators' access and
// shares of a device's capacity are meant to be next to others.
func exclusiveDevices(claim *resourcev1.ResourceClaim) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var out []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		if !ptr.Deref(r.AdminAccess, false) && r.ShareID == nil {
			out = append(out, r.Driver+"/"+r.Pool+"/"+r.Device)
		}
	}
	return out
}
