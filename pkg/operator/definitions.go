// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// webhookManager owns the CA in spec.conversion of the CustomResourceDefinitions. `fairlead
// install --operator` and kubectl own the rest under other names, and so never remove it.
const webhookManager = "fairlead-operator-webhook"

// definitionsBound is how long the API server may take to serve the definitions.
const definitionsBound = time.Minute

// definitions are the CustomResourceDefinitions in the cluster.
type definitions struct {
	client  apiextensionsclient.CustomResourceDefinitionInterface
	options Options
	// published is called when the definitions that the operator can use have the webhook; it may be nil.
	published func()
}

func newDefinitions(cfg *rest.Config, o Options) (*definitions, error) {
	clients, err := apiextensions.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &definitions{client: clients.ApiextensionsV1().CustomResourceDefinitions(), options: o}, nil
}

// install publishes the webhook and its CAs, creates definitions that are missing if no other is foreign, and waits
// until the definitions are served. The rights that package pkg/bundle/operator renders do not allow
// to create any: there `fairlead install --operator` has created them.
func (d *definitions) install(ctx context.Context, cas []byte) error {
	wanted, err := crds.WithWebhook(d.options.clientConfig(cas))
	if err != nil {
		return err
	}
	if err := d.publish(ctx, cas); err != nil {
		return err
	}
	if err := d.create(ctx, wanted); err != nil {
		return err
	}
	d.areUsed()
	bounded, cancel := context.WithTimeout(ctx, definitionsBound)
	defer cancel()
	for _, crd := range wanted {
		for !established(bounded, d.client, crd.Name) {
			select {
			case <-bounded.Done():
				return fmt.Errorf("CustomResourceDefinition %s is not established: %w: look at its conditions", crd.Name, bounded.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func (d *definitions) areUsed() {
	if d.published != nil {
		d.published()
	}
}

// create creates the definitions that are missing.
func (d *definitions) create(ctx context.Context, wanted []*apiextensionsv1.CustomResourceDefinition) error {
	found, strange, unread := d.live(ctx, wanted)
	failures := []error{strange, unread}
	for _, crd := range wanted {
		if found[crd.Name] != nil {
			continue
		}
		if _, err := d.client.Create(ctx, crd, metav1.CreateOptions{FieldManager: webhookManager}); err != nil && !apierrors.IsAlreadyExists(err) {
			failures = append(failures, fmt.Errorf("CustomResourceDefinition %s: %w: %s", crd.Name, err, installIt))
		}
	}
	return errors.Join(failures...)
}

// installIt is the remedy for definitions that are missing, or may not be changed.
const installIt = "run `fairlead install --operator`, which installs the definitions and the rights to change them"

// live returns the definitions of these names that the cluster has and that the operator can use. A foreign one keeps its
// conversion. Of those that are foreign and those that cannot be read, the errors say why.
func (d *definitions) live(ctx context.Context, wanted []*apiextensionsv1.CustomResourceDefinition) (found map[string]*apiextensionsv1.CustomResourceDefinition, strange, unread error) {
	found = map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, w := range wanted {
		live, err := d.client.Get(ctx, w.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("CustomResourceDefinition %s: %w: %s", w.Name, err, installIt))
			continue
		}
		if why := foreign(w, live); why != "" {
			strange = errors.Join(strange, fmt.Errorf("CustomResourceDefinition %s is not Fairlead's, or of another release: %s: it was not changed: "+
				"run `fairlead install --operator`, which shows what differs, or delete the definition, which deletes its objects", w.Name, why))
			continue
		}
		found[w.Name] = live
	}
	return found, strange, unread
}

// foreign says why the operator cannot use a definition. It is "" for one of this release, and for one that
// has more versions.
func foreign(wanted, live *apiextensionsv1.CustomResourceDefinition) string {
	read := crd.StorageVersion(wanted)
	version := crd.Version(live, read)
	switch {
	case live.Spec.Names.Kind != wanted.Spec.Names.Kind:
		return fmt.Sprintf("it is of kind %s, not %s", live.Spec.Names.Kind, wanted.Spec.Names.Kind)
	case live.Spec.Scope != wanted.Spec.Scope:
		return fmt.Sprintf("its scope is %s, not %s", live.Spec.Scope, wanted.Spec.Scope)
	case version == nil || !version.Served:
		return fmt.Sprintf("it does not serve version %s", read)
	case !sameFields(crd.Version(wanted, read), version):
		return fmt.Sprintf("its version %s declares none of the fields", read)
	}
	return ""
}

// sameFields reports whether the spec of a version has a field of the wanted one, or may have any. Other releases have some
// fields more or less.
func sameFields(wanted, live *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	spec := func(v *apiextensionsv1.CustomResourceDefinitionVersion) apiextensionsv1.JSONSchemaProps {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return apiextensionsv1.JSONSchemaProps{}
		}
		return v.Schema.OpenAPIV3Schema.Properties["spec"]
	}
	fields := spec(live)
	for name := range spec(wanted).Properties {
		if _, found := fields.Properties[name]; found {
			return true
		}
	}
	root := live.Schema != nil && live.Schema.OpenAPIV3Schema != nil && ptr.Deref(live.Schema.OpenAPIV3Schema.XPreserveUnknownFields, false)
	return root || ptr.Deref(fields.XPreserveUnknownFields, false)
}

// publish writes the webhook and its CAs into the definitions where they are not there: one patch
// per definition and change. A definition that is missing is skipped. One that is foreign, or cannot be written, leads to
// an error, and the others are written nevertheless.
func (d *definitions) publish(ctx context.Context, cas []byte) error {
	wanted, err := crds.WithWebhook(d.options.clientConfig(cas))
	if err != nil {
		return err
	}
	found, strange, failure := d.live(ctx, wanted)
	for _, crd := range wanted {
		if err := publishIn(ctx, d.client, crd, found[crd.Name]); client.IgnoreNotFound(err) != nil {
			failure = errors.Join(failure, fmt.Errorf("CustomResourceDefinition %s: %w: %s", crd.Name, err, installIt))
		}
	}
	if failure == nil && len(found) > 0 {
		d.areUsed()
	}
	return errors.Join(strange, failure)
}

// trust reports whether the API server trusts a CA, by all definitions that name the webhook. Foreign ones do not call it.
func (d *definitions) trust(ctx context.Context, ca []byte) (bool, error) {
	wanted, err := crds.WithWebhook(d.options.clientConfig(ca))
	if err != nil {
		return false, err
	}
	for _, crd := range wanted {
		if crd.Spec.Conversion == nil {
			continue
		}
		live, err := d.client.Get(ctx, crd.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read CustomResourceDefinition %s: %w", crd.Name, err)
		}
		if foreign(crd, live) != "" {
			continue
		}
		if c := live.Spec.Conversion; c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || !bytes.Contains(c.Webhook.ClientConfig.CABundle, bytes.TrimSpace(ca)) {
			return false, nil
		}
	}
	return true, nil
}

// names are those of all definitions.
func (d *definitions) names() ([]string, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, crd := range all {
		names = append(names, crd.Name)
	}
	return names, nil
}

// publishIn writes nothing if the definition has the webhook and the CAs.
func publishIn(ctx context.Context, definitions apiextensionsclient.CustomResourceDefinitionInterface, crd, live *apiextensionsv1.CustomResourceDefinition) error {
	if crd.Spec.Conversion == nil || live == nil || equality.Semantic.DeepEqual(live.Spec.Conversion, crd.Spec.Conversion) {
		return nil
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
	_, err = definitions.Patch(ctx, crd.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: webhookManager})
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
