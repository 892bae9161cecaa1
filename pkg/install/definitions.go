// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// establishedInterval is short, because the API server needs a moment only.
const establishedInterval = 100 * time.Millisecond

// awaitEstablished waits until the API server serves a definition, so that what comes after it
// may use its kind.
func (c *client) awaitEstablished(ctx context.Context, r Ref) error {
	for {
		live, err := c.get(ctx, r)
		if err == nil && isEstablished(live) {
			return nil
		}
		if err != nil && isAnswer(err) {
			return fmt.Errorf("wait for %s: %w", r, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not established: %w: look at its conditions with kubectl describe crd %s", r, context.Cause(ctx), r.Name)
		case <-time.After(establishedInterval):
		}
	}
}

func isEstablished(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(item any) bool {
		c, _ := item.(map[string]any)
		return c["type"] == string(apiextensionsv1.Established) && c["status"] == string(apiextensionsv1.ConditionTrue)
	})
}

// CustomObjects lists the objects of the kinds that the operator's definitions define, as
// "Bundle default". It reads metadata only, in the version that is stored, so that it needs no
// webhook. Objects of a definition that is being deleted go with it, and are not listed.
func CustomObjects(ctx context.Context, cfg *rest.Config) (out []string, err error) {
	err = eachCustomObject(ctx, cfg, func(r Ref, _ metav1.Object, goes bool) {
		if !goes {
			out = append(out, r.String())
		}
	})
	return out, err
}

// eachCustomObject shows each object, and whether its definition is being deleted.
func eachCustomObject(ctx context.Context, cfg *rest.Config, see func(r Ref, o metav1.Object, goes bool)) error {
	c, err := newClient(cfg, Operator)
	if err != nil {
		return err
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	for _, d := range definitions {
		live, err := c.definition(ctx, d.Name)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		version, err := storedVersion(live)
		if err != nil {
			return err
		}
		list, err := c.metadata.Resource(schema.GroupVersionResource{Group: d.Spec.Group, Version: version, Resource: d.Spec.Names.Plural}).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) && live.GetDeletionTimestamp() != nil {
			continue // it has gone meanwhile
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", d.Spec.Names.Plural, err)
		}
		for i := range list.Items {
			see(Ref{Kind: d.Spec.Names.Kind, Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}, &list.Items[i], live.GetDeletionTimestamp() != nil)
		}
	}
	return nil
}

// definition reads a definition, which may be that of another release; nil if there is none.
func (c *client) definition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	live, err := c.get(ctx, Ref{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: definitionKind, Name: name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the CustomResourceDefinition %s: %w", name, err)
	}
	return live, nil
}

// storedVersion is the version that a definition stores.
func storedVersion(live *unstructured.Unstructured) (string, error) {
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	for _, item := range versions {
		if v, _ := item.(map[string]any); v["storage"] == true {
			name, _ := v["name"].(string)
			return name, nil
		}
	}
	return "", fmt.Errorf("the CustomResourceDefinition %s stores no version", live.GetName())
}

// FindingCustomObjects is the ID of the finding that objects would be deleted together with their definition.
const FindingCustomObjects = "custom-objects"

// FindingFinalizer is the ID of the finding that the deletion of an object waits for the operator.
const FindingFinalizer = "finalizer"

// PreflightDeleteCustomObjects determines whether the definitions and their objects can go with the
// operator: nothing else takes the finalizer of a Bundle of deletionPolicy Delete.
func PreflightDeleteCustomObjects(ctx context.Context, cfg *rest.Config) (findings []Finding, err error) {
	err = eachCustomObject(ctx, cfg, func(r Ref, o metav1.Object, _ bool) {
		if slices.Contains(o.GetFinalizers(), v1beta1.FinalizerUninstall) {
			findings = append(findings, Finding{
				ID: FindingFinalizer, Message: fmt.Sprintf("the operator has to end the deletion of %s, which has finalizer %s", r, v1beta1.FinalizerUninstall),
				Hint: "run `kubectl delete bundle default` first, or set deletionPolicy: Orphan to keep what the Bundle brought",
			})
		}
	})
	return findings, err
}

// PreflightUninstallOperator determines whether to uninstall the operator with its definitions
// would delete objects of users.
func PreflightUninstallOperator(ctx context.Context, cfg *rest.Config) ([]Finding, error) {
	objects, err := CustomObjects(ctx, cfg)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	const most = 10
	shown := objects[:min(len(objects), most)]
	message := strings.Join(shown, ", ")
	if more := len(objects) - len(shown); more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return []Finding{{
		ID: FindingCustomObjects, Message: "the definitions' objects would be deleted: " + message,
		Hint: "keep them and the definitions with --custom-resources=keep, delete them with --custom-resources=delete, or save and delete them yourself first",
	}}, nil
}
