// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
)

// webhookManager owns the CA in spec.conversion of the CustomResourceDefinitions. `fairlead
// install --operator` and kubectl own the rest under other names, and so never remove it.
const webhookManager = "fairlead-operator-webhook"

// definitionsBound is how long the API server may take to serve the definitions.
const definitionsBound = time.Minute

// applyDefinitions writes the webhook and its CAs into the definitions, and waits until they are
// served. It creates definitions that are missing, which the rights that package
// pkg/bundle/operator renders do not allow: there `fairlead install --operator` has created them.
func applyDefinitions(ctx context.Context, cfg *rest.Config, o Options, cas []byte) error {
	definitions, err := crds.WithWebhook(o.clientConfig(cas))
	if err != nil {
		return err
	}
	clients, err := apiextensions.NewForConfig(cfg)
	if err != nil {
		return err
	}
	client := clients.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range definitions {
		if err := applyDefinition(ctx, client, crd); err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w: run `fairlead install --operator`, which installs the definitions and the rights to change them", crd.Name, err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, definitionsBound)
	defer cancel()
	for _, crd := range definitions {
		for !established(bounded, client, crd.Name) {
			select {
			case <-bounded.Done():
				return fmt.Errorf("CustomResourceDefinition %s is not established: %w: look at its conditions", crd.Name, bounded.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// applyDefinition writes nothing if the definition has the webhook and the CAs.
func applyDefinition(ctx context.Context, client apiextensionsclient.CustomResourceDefinitionInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	live, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, crd, metav1.CreateOptions{FieldManager: webhookManager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		live, err = client.Get(ctx, crd.Name, metav1.GetOptions{})
	}
	if err != nil || crd.Spec.Conversion == nil || equality.Semantic.DeepEqual(live.Spec.Conversion, crd.Spec.Conversion) {
		return err
	}
	// A definition has either a URL or a Service: what this one lacks is removed.
	wanted := crd.Spec.Conversion.Webhook
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{
		"strategy": crd.Spec.Conversion.Strategy,
		"webhook": map[string]any{
			"conversionReviewVersions": wanted.ConversionReviewVersions,
			"clientConfig":             map[string]any{"url": wanted.ClientConfig.URL, "service": wanted.ClientConfig.Service, "caBundle": wanted.ClientConfig.CABundle},
		},
	}}})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, crd.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: webhookManager})
	return err
}

func established(ctx context.Context, client apiextensionsclient.CustomResourceDefinitionInterface, name string) bool {
	crd, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return true
		}
	}
	return false
}
