// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// cleanBound is how long the removal of a test's objects may take on a busy machine.
const cleanBound = 2 * time.Minute

// TakeControlPlane returns a control plane that no other test has until this one ends, with no other objects than
// those of kube-apiserver. It is for tests that need the whole cluster. A test that ends leaves its control plane to the next one, without its objects, so
// that a package starts as many as it has tests at the same time. TestMain has to call [RunShared].
func TakeControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	testutil.Integration(t, "etcd and kube-apiserver")
	p := takePlane(t)
	t.Cleanup(func() {
		p.clean(t)
		shared.Lock()
		defer shared.Unlock()
		shared.free = append(shared.free, p)
	})
	return p.ControlPlane
}

// Beside runs a test in parallel with others that take a control plane, but not in `make test`: the start of a second control plane
// takes longer than the few tests there.
func Beside(t *testing.T) {
	t.Helper()
	if !testutil.Main() {
		t.Parallel()
	}
}

func takePlane(t *testing.T) *plane {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.running {
		t.Fatal("take a control plane: TestMain does not call daemontest.RunShared")
	}
	if last := len(shared.free) - 1; last >= 0 {
		p := shared.free[last]
		shared.free = shared.free[:last]
		return p
	}
	cp, err := shared.owner.start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlane(t.Context(), cp)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// plane is a control plane that tests use one after the other.
type plane struct {
	*ControlPlane
	metadata metadata.Interface
	before   map[types.UID]bool // what was there before the first test
}

func newPlane(ctx context.Context, cp *ControlPlane) (*plane, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	p := &plane{ControlPlane: cp, before: map[types.UID]bool{}}
	if p.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return nil, err
	}
	all, err := p.objects(ctx)
	for _, o := range all {
		p.before[o.UID] = true
	}
	return p, err
}

// object is an object of any kind.
type object struct {
	metav1.PartialObjectMetadata
	resource schema.GroupVersionResource
	client   metadata.ResourceInterface
}

// recreated are resources whose objects kube-apiserver makes for others.
var recreated = []string{"componentstatuses", "ipaddresses", "servicecidrs"}

// objects returns all objects that can be deleted, but for those that kube-apiserver makes at any time.
func (p *plane) objects(ctx context.Context) (all []object, err error) {
	lists, err := p.Client.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // of an APIService without a server
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || slices.Contains(recreated, r.Name) {
				continue
			}
			client := p.metadata.Resource(gv.WithResource(r.Name))
			found, err := client.List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) { // discovery may be late
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range found.Items {
				if !ofAPIServer(r.Name, &o) {
					of := metadata.ResourceInterface(client)
					if r.Namespaced {
						of = client.Namespace(o.Namespace)
					}
					all = append(all, object{o, gv.WithResource(r.Name), of})
				}
			}
		}
	}
	return all, nil
}

// ofAPIServer reports whether kube-apiserver makes an object, and makes it again.
func ofAPIServer(resource string, o *metav1.PartialObjectMetadata) bool {
	return o.Labels["kubernetes.io/bootstrapping"] != "" || o.Labels["kube-aggregator.kubernetes.io/automanaged"] != "" || o.Annotations["apf.kubernetes.io/autoupdate-spec"] != "" ||
		resource == "namespaces" && (o.Name == metav1.NamespaceDefault || strings.HasPrefix(o.Name, "kube-")) || o.Namespace == metav1.NamespaceDefault && o.Name == "kubernetes" ||
		resource == "leases" && strings.HasPrefix(o.Name, "apiserver-") ||
		resource == "configmaps" && (strings.HasPrefix(o.Name, "kube-apiserver-") || o.Name == "extension-apiserver-authentication")
}

// clean removes all objects that tests have made, whatever finalizers they have.
func (p *plane) clean(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanBound)
	defer cancel()
	testutil.Eventually(t, cleanBound, func() error {
		err := p.convertNothing(ctx)
		all, listed := p.objects(ctx)
		err = errors.Join(err, listed)
		for _, o := range all {
			if p.before[o.UID] {
				continue
			}
			err = errors.Join(err, fmt.Errorf("%s %s/%s is left", o.resource.Resource, o.Namespace, o.Name), p.remove(ctx, o))
		}
		return err
	})
}

// definitions have a finalizer that removes their objects.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// convertNothing ends the use of conversion webhooks: they have ended with their test, and objects could not be read or deleted.
func (p *plane) convertNothing(ctx context.Context) error {
	list, err := p.metadata.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		if d.DeletionTimestamp == nil {
			patch := []byte(`{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
			_, err = p.metadata.Resource(definitions).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (p *plane) remove(ctx context.Context, o object) error {
	var err error
	switch {
	case o.resource.Resource == "namespaces":
		namespaces := p.Client.CoreV1().Namespaces()
		ns, getErr := namespaces.Get(ctx, o.Name, metav1.GetOptions{})
		if err = getErr; err == nil && o.DeletionTimestamp != nil {
			ns.Spec.Finalizers = nil
			_, err = namespaces.Finalize(ctx, ns, metav1.UpdateOptions{})
		}
	case len(o.Finalizers) > 0 && o.resource != definitions:
		_, err = o.client.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	}
	if err == nil && o.DeletionTimestamp == nil {
		background := metav1.DeletePropagationBackground
		err = o.client.Delete(ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: &background})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the next look tells
		return nil
	}
	return err
}
