// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/cluster"
)

// TestCount checks that several control plane nodes with a bundle for one are
// refused, and that the error names the fields to set.
func TestCount(t *testing.T) {
	var pods []runtime.Object
	for i := range 3 {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: fmt.Sprintf("kube-apiserver-cp%d", i), Labels: map[string]string{"component": "kube-apiserver"}},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("cp%d", i)},
		})
	}
	for name, tc := range map[string]struct {
		change func(*Node)
		pods   []runtime.Object
		want   bool
	}{
		"one of three":   {func(*Node) {}, pods, false},
		"two of three":   {func(n *Node) { n.Bundle.Konnectivity.Server.Count = ptr.To(int32(2)) }, pods, false},
		"three of three": {func(n *Node) { n.Bundle.Konnectivity.Server.Count = ptr.To(int32(3)) }, pods, true},
		"Leases":         {func(n *Node) { n.Bundle.Konnectivity.LeaseCounting = ptr.To(true) }, pods, true},
		"ignored":        {func(n *Node) { n.Ignored = []string{ServerCount} }, pods, true},
		"all ignored":    {func(n *Node) { n.Ignored = []string{All} }, pods, true},
		"other ignored":  {func(n *Node) { n.Ignored = []string{Version} }, pods, false},
		"a single node":  {func(*Node) {}, pods[:1], true},
		"no mirror Pod yet of the node that has joined": {func(*Node) {}, pods[1:2], false},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{Bundle: v1alpha1.New(), Notef: t.Logf}
			tc.change(&n)
			n.Bundle = n.Bundle.Defaulted()
			n.API = cluster.API{Client: fake.NewClientset(tc.pods...), Node: "cp0", Bundle: n.Bundle}
			err := n.checkCount(t.Context())
			if (err == nil) != tc.want {
				t.Errorf("%v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), "set konnectivity.server.count: ") || !strings.Contains(err.Error(), "leaseCounting") || !strings.Contains(err.Error(), "--ignore-preflight-errors=server-count")) {
				t.Errorf("%v", err)
			}
		})
	}
}
