// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// The kinds of group fairlead.dev.
const (
	kindBundle  = "Bundle"
	kindProfile = "SchedulerProfile"
	kindPool    = "TunnelPool"
)

// ofKind is an object of a kind as the API server stores it. Objects of group fairlead.dev are
// watched and read in this form only: the cache of the Go types stays empty for the whole kind
// while one object does not decode into them, and the operator would exit after some minutes.
func ofKind(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk(kind))
	return u
}

func gvk(kind string) schema.GroupVersionKind { return v1beta1.GroupVersion.WithKind(kind) }

// stored is the Bundle as it is stored, and the configuration that it is. The error invalid says
// why it is none.
type stored struct {
	*v1beta1.Bundle
	wanted  *config.Bundle
	invalid error
}

// boundsError says what a Bundle asks for and the operator does not allow.
type boundsError struct{ error }

// readBundle reads the one Bundle.
func readBundle(ctx context.Context, c client.Reader, bounds operator.Bounds) (stored, error) {
	u := ofKind(kindBundle)
	if err := c.Get(ctx, client.ObjectKey{Name: bundle.ObjectName}, u); err != nil {
		return stored{}, err
	}
	s := stored{Bundle: &v1beta1.Bundle{}}
	if s.invalid = decode(u, s.Bundle, &s.Spec, &s.Status); s.invalid != nil {
		s.Spec.Namespace, _, _ = unstructured.NestedString(u.Object, "spec", "namespace") // where its workloads are
	} else {
		s.invalid = checkProfiles(u)
	}
	if s.invalid == nil {
		s.wanted, s.invalid = load(s.Bundle)
	}
	if s.invalid == nil {
		if errs := bounds.Check(s.wanted); len(errs) > 0 {
			s.invalid = &boundsError{errs.ToAggregate()}
		}
	}
	return s, nil
}

// readProfiles reads all SchedulerProfiles. Of those that do not decode, invalid says why, by UID.
func readProfiles(ctx context.Context, c client.Reader) ([]v1beta1.SchedulerProfile, map[types.UID]error, error) {
	return readAll(ctx, c, kindProfile, func(u *unstructured.Unstructured, p *v1beta1.SchedulerProfile) error {
		err := decode(u, p, &p.Spec, &p.Status)
		if err != nil { // the name is needed nevertheless: see held
			p.Spec.SchedulerName, _, _ = unstructured.NestedString(u.Object, "spec", "schedulerName")
		}
		return err
	})
}

// readPools reads all TunnelPools, as readProfiles does.
func readPools(ctx context.Context, c client.Reader) ([]v1beta1.TunnelPool, map[types.UID]error, error) {
	return readAll(ctx, c, kindPool, func(u *unstructured.Unstructured, p *v1beta1.TunnelPool) error {
		return decode(u, p, &p.Spec, &p.Status)
	})
}

func readAll[T any](ctx context.Context, c client.Reader, kind string, decode func(*unstructured.Unstructured, *T) error) ([]T, map[types.UID]error, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk(kind + "List"))
	if err := c.List(ctx, list); err != nil {
		return nil, nil, err
	}
	all, invalid := make([]T, len(list.Items)), map[types.UID]error{}
	for i := range list.Items {
		if err := decode(&list.Items[i], &all[i]); err != nil {
			invalid[list.Items[i].GetUID()] = err
		}
	}
	return all, invalid, nil
}

// decode fills in an object, whose spec and status are given as well. The error is about the spec,
// which must not be used then. Of a status that does not decode, nothing is kept, so that the
// conditions that are set next differ from it, and the status is rewritten.
func decode(u *unstructured.Unstructured, o client.Object, spec, status any) error {
	header := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": u.Object["metadata"]}
	if err := fill(o, header); err != nil {
		return fmt.Errorf("metadata does not decode: %w", err)
	}
	if err := fill(status, u.Object["status"]); err != nil {
		reflect.ValueOf(status).Elem().SetZero()
	}
	if err := fill(spec, u.Object["spec"]); err != nil {
		return fmt.Errorf("spec does not decode: %w: correct this field", err)
	}
	return nil
}

// checkProfiles refuses profiles in a Bundle with fields that do not exist. Of other fields the schema has removed these.
func checkProfiles(u *unstructured.Unstructured) error {
	profiles, _, err := unstructured.NestedSlice(u.Object, "spec", "scheduler", "profiles")
	if err != nil {
		return fmt.Errorf("spec does not decode: %w: correct this field", err)
	}
	for i, p := range profiles {
		data, err := utiljson.Marshal(p)
		if err == nil {
			_, err = decodeProfile(data)
		}
		if err != nil {
			return fmt.Errorf("spec.scheduler.profiles[%d]: %w", i, err)
		}
	}
	return nil
}

// decodeProfile reads a profile strictly, as the commands read it from a file: the schema keeps all fields of it.
func decodeProfile(data []byte) (schedulerv1.KubeSchedulerProfile, error) {
	var p schedulerv1.KubeSchedulerProfile
	strict, err := kjson.UnmarshalStrict(data, &p)
	if err == nil {
		err = utilerrors.NewAggregate(strict)
	}
	if err != nil {
		return p, fmt.Errorf("%w: correct this field: it must be a profile of kubescheduler.config.k8s.io/v1", err)
	}
	return p, nil
}

func fill(target, value any) error {
	data, err := utiljson.Marshal(value)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(data, target)
}
