// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// FieldManager is the field manager of `fairlead install`; Party has those of
// other commands.
const FieldManager = "fairlead"

// requestTimeout bounds one request: an API server that accepts a connection and
// never answers must not hang a command.
const requestTimeout = 30 * time.Second

// client talks to one API server.
type client struct {
	dynamic  dynamic.Interface
	kube     kubernetes.Interface
	metadata metadata.Interface
	mapper   meta.RESTMapper
	warnings *warnings
	party    Party
	config   *rest.Config
	timing   timing
	keep     []Ref // objects that are not pruned
	// keepOthers prunes no object.
	keepOthers bool
	// keepNamespaces keeps all namespaces in Uninstall.
	keepNamespaces bool
	// ownUIDs are objects that an installed program made and that go with it.
	ownUIDs []types.UID
}

// newClient creates a client. Its first request is API discovery.
func newClient(cfg *rest.Config, party Party) (*client, error) {
	c := &client{warnings: &warnings{}, party: party, timing: usual}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // no client-side rate limit: the default is noticeably slow
	cfg.WarningHandler = c.warnings
	if cfg.Timeout == 0 {
		cfg.Timeout = requestTimeout
	}
	c.config = cfg
	var err error
	if c.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(c.kube.Discovery())
	if err != nil {
		return nil, fmt.Errorf("ask the API server for what it serves: %w", err)
	}
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return c, nil
}

// resource returns the client for requests for an object.
func (c *client) resource(r Ref) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(r.gvk().GroupKind(), r.gvk().Version)
	if err != nil {
		return nil, fmt.Errorf("the API server does not serve %s of %s: is this the right cluster? %w", r.Kind, r.APIVersion, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource).Namespace(r.Namespace), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}

func (c *client) get(ctx context.Context, r Ref) (*unstructured.Unstructured, error) {
	res, err := c.resource(r)
	if err != nil {
		return nil, err
	}
	return res.Get(ctx, r.Name, metav1.GetOptions{})
}

// apply sends one server-side apply request, with strict field validation like
// kubectl's default (--validate=strict).
func (c *client) apply(ctx context.Context, u *unstructured.Unstructured, force, dryRun bool) (*unstructured.Unstructured, error) {
	res, err := c.resource(RefOf(u))
	if err != nil {
		return nil, err
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", RefOf(u), err)
	}
	return res.Patch(ctx, u.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: c.party.FieldManager(), Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRunOf(dryRun),
	})
}

// remove deletes exactly the object that was read: if another client has
// recreated it under the same name, its UID differs. Its dependents are deleted
// in the background.
func (c *client) remove(ctx context.Context, u *unstructured.Unstructured, dryRun bool) error {
	res, err := c.resource(RefOf(u))
	if err != nil {
		return err
	}
	uid, background := u.GetUID(), metav1.DeletePropagationBackground
	return res.Delete(ctx, u.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dryRunOf(dryRun),
	})
}

func dryRunOf(on bool) []string {
	if on {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// warnings collects the API server's warnings, each text once.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if code == 299 && text != "" && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}
