// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// plan is what a run does with one definition.
type plan struct {
	definition *apiextensionsv1.CustomResourceDefinition
	storage    string
	// drop are the versions that leave status.storedVersions.
	drop []string
	// resource is the one to list and to patch, in a version that is served.
	resource schema.GroupVersionResource
	// served are the apiVersions whose managedFields stay.
	served []string
	// status says whether the version has a status subresource.
	status bool
}

// missing says that a definition does not exist. It is the API server's NotFound in other words.
type missing struct {
	text string
	err  error
}

func (m *missing) Error() string { return m.text }

func (m *missing) Unwrap() error { return m.err }

func (m *Migrator) plan(ctx context.Context, name string) (*plan, error) {
	d, err := m.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, &missing{fmt.Sprintf("no CustomResourceDefinition %q%s", name, m.similar(ctx, name)), err}
	}
	if err != nil {
		return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	p := &plan{definition: d, storage: crd.StorageVersion(d)}
	if err := migratable(d, p.storage); err != nil {
		return nil, err
	}
	version := readable(d, p.storage)
	if version == nil {
		return nil, fmt.Errorf("%s: no version is served, so its objects cannot be read: set served: true on version %s", name, p.storage)
	}
	p.resource = schema.GroupVersionResource{Group: d.Spec.Group, Version: version.Name, Resource: d.Spec.Names.Plural}
	p.status = version.Subresources != nil && version.Subresources.Status != nil
	for _, v := range d.Status.StoredVersions {
		if v != p.storage {
			p.drop = append(p.drop, v)
		}
	}
	for _, v := range d.Spec.Versions {
		if v.Served {
			p.served = append(p.served, d.Spec.Group+"/"+v.Name)
		}
	}
	return p, nil
}

// loses says which fields of stored objects would be removed for good: without a conversion, clients of the
// version in which they are stored can still read them.
func (p *plan) loses() error {
	d := p.definition
	if d.Spec.PreserveUnknownFields || d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter {
		return nil
	}
	for _, name := range p.drop {
		from, to := crd.Version(d, name), crd.Version(d, p.storage)
		if from == nil || to == nil {
			continue
		}
		if fields := crd.Lost(from, to); len(fields) > 0 {
			return fmt.Errorf("%s: objects may be stored in %s, nothing converts them, and %s lacks %s: the migration would remove what is there for good: "+
				"have a webhook convert them, add the fields to %s, or use --accept-data-loss", d.Name, name, p.storage, strings.Join(fields, ", "), p.storage)
		}
	}
	return nil
}

// migratable refuses definitions whose objects the API server does not serve for good.
func migratable(d *apiextensionsv1.CustomResourceDefinition, storage string) error {
	switch {
	case d.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted together with its objects: there is nothing to migrate", d.Name)
	case storage == "":
		return fmt.Errorf("%s has no storage version: correct spec.versions", d.Name)
	case !slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}):
		return fmt.Errorf("%s is not established: look at its conditions with kubectl describe crd %s", d.Name, d.Name)
	}
	return nil
}

// readable is the storage version, or the served version of the highest priority.
func readable(d *apiextensionsv1.CustomResourceDefinition, storage string) *apiextensionsv1.CustomResourceDefinitionVersion {
	var best *apiextensionsv1.CustomResourceDefinitionVersion
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		switch {
		case !v.Served:
		case v.Name == storage:
			return v
		case best == nil || apimachineryversion.CompareKubeAwareVersionStrings(best.Name, v.Name) < 0:
			best = v
		}
	}
	return best
}

// similar helps with the likeliest mistakes: the kind, a short name or the plural alone.
func (m *Migrator) similar(ctx context.Context, name string) string {
	list, err := m.definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ": a name has the form PLURAL.GROUP"
	}
	for _, d := range list.Items {
		names := append([]string{d.Spec.Names.Plural, d.Spec.Names.Singular, d.Spec.Names.Kind}, d.Spec.Names.ShortNames...)
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, strings.SplitN(name, ".", 2)[0]) }) {
			return fmt.Sprintf(": did you mean %s?", d.Name)
		}
	}
	return ": a name has the form PLURAL.GROUP; kubectl get crd lists them"
}
