// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names and ports that the program and its objects must agree on.
const (
	// Name of the program and of its objects, among them the Lease by which replicas elect
	// one that reconciles.
	Name = "fairlead-operator"
	// DefaultNamespace of the operator.
	DefaultNamespace = "fairlead-system"
	// WebhookSecret holds the CA and the certificate of the webhook. The operator writes it.
	WebhookSecret = Name + "-webhook"
	// ServicePort is where the API server calls the webhook's Service.
	ServicePort int32 = 443
	// WebhookPort, MetricsPort and HealthPort are those of the Pods.
	WebhookPort int32 = 9443
	MetricsPort int32 = 8080
	HealthPort  int32 = 8081
	// DefaultReplicas are one that reconciles and one that takes over. Both convert.
	DefaultReplicas int32 = 2
)

// Options are what an installation of the operator may choose. The zero value has defaults.
type Options struct {
	// Namespace of the operator. Default: fairlead-system.
	Namespace string
	// Image of the operator. Default: this release's fairlead-operator.
	Image string
	// Replicas of the Deployment. Default: 2.
	Replicas *int32
	// Bounds of what Bundles and TunnelPools may ask for.
	Bounds Bounds
}

// Defaulted returns the options with defaults for what is not set.
func (o Options) Defaulted() Options {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Image == "" {
		o.Image = v1alpha1.DefaultOperatorImage
	}
	if o.Replicas == nil {
		o.Replicas = ptr.To(DefaultReplicas)
	}
	return o
}

// Validate checks defaulted options.
func (o Options) Validate() error {
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %q of the operator: %s", o.Namespace, strings.Join(problems, "; "))
	}
	if o.Image == "" || strings.ContainsAny(o.Image, " \t\n") {
		return fmt.Errorf("image %q of the operator: give the name of an image, without blanks", o.Image)
	}
	if n := ptr.Deref(o.Replicas, DefaultReplicas); n < 1 {
		return fmt.Errorf("%d replicas of the operator: run at least 1, or uninstall it", n)
	}
	return o.Bounds.Validate()
}

// ClientConfig is how the API server calls the webhook of an operator in a namespace: by its
// Service, through the tunnel. caBundle may be nil while there is no CA.
func ClientConfig(namespace, service string, caBundle []byte) apiextensionsv1.WebhookClientConfig {
	return apiextensionsv1.WebhookClientConfig{CABundle: caBundle, Service: &apiextensionsv1.ServiceReference{
		Namespace: namespace, Name: service, Path: ptr.To(conversion.WebhookPath), Port: ptr.To(ServicePort),
	}}
}
