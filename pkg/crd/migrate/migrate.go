// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// Method says who rewrites the objects.
type Method string

const (
	// Auto takes Controller if it is there, otherwise Patch.
	Auto Method = "auto"
	// Controller is the storage version migrator of kube-controller-manager.
	Controller Method = "controller"
	// Patch is an empty patch of each object, sent by Run.
	Patch Method = "patch"
)

// The defaults of Options.
const (
	DefaultQPS            = 50
	DefaultPageSize       = 500
	DefaultSettle         = 10 * time.Second
	DefaultControllerWait = 20 * time.Second
	workers               = 8
	requestTimeout        = time.Minute
)

// Options of a run; the zero value has the defaults.
type Options struct {
	// DryRun sends all patches as dry runs and leaves the definition alone.
	DryRun bool
	// RewriteAll also migrates if status.storedVersions has only the storage version.
	RewriteAll bool
	// AcceptLoss goes on although nothing converts the objects and the storage version lacks some of their fields.
	AcceptLoss bool
	// CleanUp looks at all objects also if status.storedVersions has only the storage version, and removes
	// managedFields of versions that are not served. It writes no other object.
	CleanUp bool
	// Method is Auto if empty.
	Method Method
	// QPS bounds the requests per second.
	QPS float32
	// PageSize is the number of objects per list request.
	PageSize int64
	// Settle is how long all API servers have to learn of the storage version: a run waits for it unless the
	// definition's spec is older by far; negative does not wait.
	Settle time.Duration
	// ControllerWait is how long the controller may take to begin.
	ControllerWait time.Duration
	// Progress is called from time to time, if it is set.
	Progress func(Result)
}

// Result says what a run did.
type Result struct {
	Name    string `json:"name"`
	Storage string `json:"storageVersion"`
	// Stored are the stored versions before the run, Dropped those that it took away.
	Stored  []string `json:"storedVersions"`
	Dropped []string `json:"dropped,omitempty"`
	// Method is empty if there was nothing to do.
	Method Method `json:"method,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Objects were seen; Rewritten of them changed their stored form, and managedFields of
	// Cleaned were removed. Gone were deleted meanwhile.
	Objects   int       `json:"objects"`
	Rewritten int       `json:"rewritten"`
	Cleaned   int       `json:"cleaned"`
	Gone      int       `json:"gone,omitempty"`
	Failed    []Failure `json:"failed,omitempty"`
	// Notes say what is unusual about the run.
	Notes []string `json:"notes,omitempty"`
}

// Failure is an object that could not be rewritten.
type Failure struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
}

// Migrator migrates the definitions of one cluster.
type Migrator struct {
	definitions apiextensions.Interface
	kube        kubernetes.Interface
	metadata    metadata.Interface
	options     Options
	clock       serverClock
}

// New connects to nothing yet.
func New(cfg *rest.Config, o Options) (*Migrator, error) {
	switch o.Method {
	case "":
		o.Method = Auto
	case Auto, Controller, Patch:
	default:
		return nil, fmt.Errorf("method %q: choose %s, %s or %s", o.Method, Auto, Controller, Patch)
	}
	o.QPS = orDefault(o.QPS, DefaultQPS)
	o.PageSize = orDefault(o.PageSize, DefaultPageSize)
	o.Settle = orDefault(o.Settle, DefaultSettle)
	o.ControllerWait = orDefault(o.ControllerWait, DefaultControllerWait)
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, max(1, int(o.QPS))
	cfg.RateLimiter = nil
	cfg.WarningHandler = rest.NoWarnings{} // deprecated versions are why one migrates
	if cfg.Timeout == 0 {
		cfg.Timeout = requestTimeout
	}
	m := &Migrator{options: o}
	cfg.Wrap(m.clock.over)
	var err error
	if m.definitions, err = apiextensions.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if m.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	m.metadata, err = metadata.NewForConfig(cfg)
	return m, err
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Pending lists the definitions whose stored versions are not only the storage version.
func (m *Migrator) Pending(ctx context.Context) ([]string, error) {
	list, err := m.definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list CustomResourceDefinitions: %w", err)
	}
	var names []string
	for i := range list.Items {
		d := &list.Items[i]
		if !slices.Equal(d.Status.StoredVersions, []string{crd.StorageVersion(d)}) && d.DeletionTimestamp == nil {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// Run migrates the objects of one definition. Its result says how far it came even if
// there is an error.
func (m *Migrator) Run(ctx context.Context, name string) (*Result, error) {
	p, err := m.plan(ctx, name)
	if err != nil {
		return &Result{Name: name}, err
	}
	r := &Result{Name: name, Storage: p.storage, Stored: p.definition.Status.StoredVersions, DryRun: m.options.DryRun}
	if len(p.drop) == 0 && !m.options.RewriteAll {
		if !m.options.CleanUp {
			return r, nil
		}
		return r, m.cleanUp(ctx, p, r)
	}
	if err := p.loses(); err != nil && !m.options.AcceptLoss {
		return r, err
	}
	if err := m.rights(ctx, p); err != nil {
		return r, err
	}
	if err := m.settle(ctx, p.definition); err != nil {
		return r, err
	}
	if err := m.rewriteBy(ctx, p, r); err != nil {
		return r, interrupted(ctx, r, err)
	}
	if len(r.Failed) > 0 {
		return r, fmt.Errorf("%s: %d of %d objects could not be rewritten: nothing was dropped from status.storedVersions: correct the objects and run the command again", name, len(r.Failed), r.Objects)
	}
	if m.options.DryRun {
		return r, nil
	}
	if err := m.drop(ctx, p); err != nil {
		return r, err
	}
	r.Dropped = p.drop
	return r, nil
}

// cleanUp removes managedFields alone.
func (m *Migrator) cleanUp(ctx context.Context, p *plan, r *Result) error {
	if err := m.rewrite(ctx, p, r, true); err != nil {
		return interrupted(ctx, r, err)
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%s: managedFields of versions that are not served could not be removed from %d of %d objects: correct the objects and run the command again", p.definition.Name, len(r.Failed), r.Objects)
	}
	return nil
}

// rewriteBy chooses the method.
func (m *Migrator) rewriteBy(ctx context.Context, p *plan, r *Result) error {
	onlyCleanUp := false
	if m.options.Method != Patch && !m.options.DryRun {
		err := m.byController(ctx, p)
		switch {
		case err == nil:
			onlyCleanUp, r.Method = true, Controller
		case m.options.Method == Controller || ctx.Err() != nil:
			return err
		case !errors.Is(err, errNotServed):
			r.Notes = append(r.Notes, err.Error())
		}
	}
	if r.Method == "" {
		r.Method = Patch
	}
	return m.rewrite(ctx, p, r, onlyCleanUp)
}

// interrupted explains that a run can be repeated.
func interrupted(ctx context.Context, r *Result, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%s: interrupted after %d objects: %w: nothing was dropped from status.storedVersions: run the command again; what is done is not written again", r.Name, r.Objects, ctx.Err())
}
