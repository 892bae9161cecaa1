// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func claimOf(name string, devices ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: name}}
	if len(devices) > 0 {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: devices}}
	}
	return c
}

// TestDeviceInTwoClaims: the check reports a device that is allocated exclusively to
// two claims, with both claims. It does not report devices that Kubernetes lets claims
// share.
func TestDeviceInTwoClaims(t *testing.T) {
	gpu := func(pool, device string) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "gpu.example.com", Pool: pool, Device: device}
	}
	admin, share1, share2 := gpu("node-1", "gpu-0"), gpu("node-1", "gpu-0"), gpu("node-1", "gpu-0")
	admin.AdminAccess = ptr.To(true)
	share1.ShareID, share2.ShareID = ptr.To[types.UID]("1"), ptr.To[types.UID]("2")
	for name, tc := range map[string]struct {
		claims []runtime.Object
		want   string
	}{
		"twice":                    {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0")), claimOf("b", gpu("node-1", "gpu-1"), gpu("node-1", "gpu-0"))}, "device gpu.example.com/node-1/gpu-0 is allocated to the claims ai/a, ai/b"},
		"different devices":        {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0")), claimOf("b", gpu("node-1", "gpu-1"))}, ""},
		"same name, another pool":  {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0")), claimOf("b", gpu("node-2", "gpu-0"))}, ""},
		"two requests of a claim":  {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0"), gpu("node-1", "gpu-0"))}, ""},
		"administrator's access":   {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0")), claimOf("b", admin)}, ""},
		"shares of its capacity":   {[]runtime.Object{claimOf("a", share1), claimOf("b", share2)}, ""},
		"a claim that still waits": {[]runtime.Object{claimOf("a", gpu("node-1", "gpu-0")), claimOf("b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			env := &Env{
				Config: &rest.Config{Host: "x"}, Client: fake.NewClientset(tc.claims...), Coexistence: CoexistenceOf(v1alpha1.New()),
				OwnsIdentity: func(context.Context, string) (bool, error) { return true, nil },
			}
			if err := env.Complete(); err != nil {
				t.Fatal(err)
			}
			wantResult(t, runOne(t.Context(), env, checkOf("x", schedulerCoexistence), Options{}.withDefaults(), shared{}), tc.want)
		})
	}
}
