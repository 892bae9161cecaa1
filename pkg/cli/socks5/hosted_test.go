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
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestHostedManifest: deploy/gateway/hosted.yaml has fields of Kubernetes only, its command line is one that
// the program accepts, and that of a rendered gateway but for the place, every file of it is in a volume, the Service leads
// to the proxy's port, and other ports are closed.
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
	if container.Args[0] != "socks5" {
		t.Fatalf("%v", container.Args)
	}
	o, flags := parsed(t, container.Args[1:])
	sameAsRendered(t, flags)
	if grace := gateway.Component(v1alpha1.New()).TerminationGraceSeconds; pod.Spec.TerminationGracePeriodSeconds != nil || *grace > corev1.DefaultTerminationGracePeriodSeconds {
		t.Errorf("a rendered gateway has %d s to end, this one %v", *grace, pod.Spec.TerminationGracePeriodSeconds)
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

func parsed(t *testing.T, args []string) (*Options, *pflag.FlagSet) {
	t.Helper()
	o := NewOptions(genericiooptions.NewTestIOStreamsDiscard())
	cmd := &cobra.Command{}
	o.addFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil || cmd.Flags().NArg() != 0 {
		t.Fatalf("%v: %v", args, err)
	}
	return o, cmd.Flags()
}

// aboutPlace are the flags that say where a gateway runs, and how it reaches its cluster from there.
var aboutPlace = []string{"listen", "metrics-address", "kubeconfig", "via", "server-address", "server-mode", "server-cert", "server-key", "server-ca", "tls-cert", "tls-key"}

// sameAsRendered compares the other flags with those of the gateway that a bundle renders.
func sameAsRendered(t *testing.T, flags *pflag.FlagSet) {
	t.Helper()
	_, rendered := parsed(t, component.Args(gateway.OwnFlags(&v1alpha1.Bundle{Gateway: v1alpha1.Gateway{Enabled: ptr.To(true)}})))
	compared := 0
	rendered.VisitAll(func(want *pflag.Flag) {
		got := flags.Lookup(want.Name)
		if slices.Contains(aboutPlace, want.Name) || !want.Changed && !got.Changed {
			return
		}
		compared++
		if got.Value.String() != want.Value.String() {
			t.Errorf("--%s=%s, a bundle renders %s", want.Name, got.Value, want.Value)
		}
	})
	if compared < 4 {
		t.Errorf("%d flags were compared", compared)
	}
}
