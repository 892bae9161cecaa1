// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestHostedManifest: deploy/gateway/hosted.yaml has fields of Kubernetes only, its command line is one that
// the program accepts, every file of it is in a volume, the Service leads to the proxy's port, and other ports are closed.
func TestHostedManifest(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/gateway/hosted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(data, []byte("\n---\n"))
	if len(documents) != 4 {
		t.Fatalf("%d objects", len(documents))
	}
	var d appsv1.Deployment
	var s corev1.Service
	var budget policyv1.PodDisruptionBudget
	var policy networkingv1.NetworkPolicy
	for i, into := range []any{&d, &s, &budget, &policy} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Fatal(err)
		}
	}
	pod := d.Spec.Template
	container := pod.Spec.Containers[0]
	o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
	cmd := &cobra.Command{}
	o.addFlags(cmd)
	if err := cmd.ParseFlags(container.Args[1:]); err != nil || container.Args[0] != "socks5" || cmd.Flags().NArg() != 0 {
		t.Fatalf("%v: %v", container.Args, err)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if o.Via != "direct" || !slices.Equal(o.TokenAudiences, []string{v1alpha1.GatewayName}) {
		t.Errorf("--via %s, audiences %v", o.Via, o.TokenAudiences)
	}
	for _, file := range []string{*o.Cluster.KubeConfig, o.Direct.CertFile, o.Direct.KeyFile, o.Direct.CAFile, o.TLSCert, o.TLSKey} {
		if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(file) }) {
			t.Errorf("no volume has %s", file)
		}
	}
	for _, mount := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 || pod.Spec.Volumes[i].Secret == nil || !strings.Contains(string(data), "Secret "+pod.Spec.Volumes[i].Secret.SecretName+",") {
			t.Errorf("volume %s has no Secret that the comment explains", mount.Name)
		}
	}
	for key, value := range s.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects %v, the Pods have %v", s.Spec.Selector, pod.Labels)
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the budget selects %v, %v", selector, err)
	}
	if selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector); err != nil || !selector.Matches(labels.Set(pod.Labels)) || len(policy.Spec.Ingress) != 1 {
		t.Errorf("the policy selects %v, %v, and has %d rules", selector, err, len(policy.Spec.Ingress))
	}
	var open, own []string
	for _, port := range policy.Spec.Ingress[0].Ports {
		open = append(open, port.Port.StrVal)
	}
	for _, port := range container.Ports {
		own = append(own, port.Name)
	}
	if !slices.Equal(open, own) || !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("the policy opens %v for %v, the container has %v", open, policy.Spec.PolicyTypes, own)
	}
	if port := container.Ports[0]; port.Name != s.Spec.Ports[0].TargetPort.StrVal || !strings.HasSuffix(o.Listen, ":1080") || port.ContainerPort != 1080 {
		t.Errorf("the Service leads to %v, the container has %v", s.Spec.Ports, container.Ports)
	}
}
