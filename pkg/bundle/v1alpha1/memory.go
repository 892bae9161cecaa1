// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// baseMemory is what a server or agent may need beyond what its flags bound: the program
// itself, connections without anything in their queues, of which 5,000 take about 100 MiB,
// sockets' buffers in the kernel, and garbage.
const baseMemory = 480 << 20

// tunnelResources are the default resources of a server or agent with these extraArgs. The
// memory limit keeps attacking clients or agents from using up the node's memory; well
// before that limit, the program resets connections as its flags say. There is no memory
// limit if the flags set no bound, and no CPU limit: that would only make the tunnel slow.
func tunnelResources(extra []Argument) *corev1.ResourceRequirements {
	r := requests("50m", "64Mi")
	total, links := int64(settings.DefaultTotalBuffer), int64(settings.DefaultLinkBudget)
	for _, a := range extra {
		// The program refuses what is no number.
		n, err := strconv.ParseInt(a.Value, 0, 64)
		switch name := strings.ReplaceAll(a.Name, "_", "-"); {
		case err != nil:
		case name == "total-buffer":
			total = n
		case name == "link-budget":
			links = n
		}
	}
	const most = 1 << 50 // sums beyond would overflow
	if total <= 0 || links < 0 || total > most || links > most {
		return r
	}
	r.Limits = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(total+links+baseMemory, resource.BinarySI)}
	return r
}
