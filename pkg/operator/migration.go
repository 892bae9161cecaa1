// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
)

// migratedFailures is how many objects a message names that could not be rewritten.
const migratedFailures = 5

// migrateStored rewrites objects that are stored in an old version. API servers need no webhook for
// reads in the storage version after that, and a later release may drop the old one.
func migrateStored(ctx context.Context, m *migrate.Migrator, names []string) error {
	var failures []error
	for _, name := range names {
		r, err := m.Run(ctx, name)
		switch {
		case err != nil && len(r.Failed) > 0 && ctx.Err() == nil:
			failures = append(failures, unmigrated(r))
		case err != nil:
			failures = append(failures, client.IgnoreNotFound(err)) // a definition that is missing has no objects
		case len(r.Dropped) > 0:
			ctrl.LoggerFrom(ctx).Info("Migrated stored objects", "definition", name, "objects", r.Objects, "rewritten", r.Rewritten, "dropped", r.Dropped)
		}
	}
	return errors.Join(failures...)
}

// unmigrated names the objects that could not be rewritten.
func unmigrated(r *migrate.Result) error {
	var texts []string
	for _, f := range r.Failed[:min(len(r.Failed), migratedFailures)] {
		name := f.Name
		if f.Namespace != "" {
			name = f.Namespace + "/" + f.Name
		}
		texts = append(texts, name+": "+f.Reason)
	}
	if more := len(r.Failed) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%d of %d objects of %s could not be rewritten in version %s: %s: correct the objects, or what refuses them; the operator tries again",
		len(r.Failed), r.Objects, r.Name, r.Storage, strings.Join(texts, "; "))
}

// migration is what the last migration of stored objects came to.
type migration struct {
	last    atomic.Pointer[error] // nil before the first one
	changed chan event.GenericEvent
}

func newMigration() *migration { return &migration{changed: make(chan event.GenericEvent, 1)} }

// note keeps the result, and leads to a look at the Bundle if it is another one than before.
func (m *migration) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	before := m.last.Swap(&err)
	if before != nil && fmt.Sprint(*before) == fmt.Sprint(err) {
		return
	}
	select {
	case m.changed <- event.GenericEvent{Object: &v1beta1.Bundle{}}:
	default: // one is on its way
	}
}

// storedMigrated reports the last migration of stored objects.
func (r *BundleReconciler) storedMigrated(b *v1beta1.Bundle) {
	if r.migration == nil {
		return
	}
	set := conditions(b)
	switch last := r.migration.last.Load(); {
	case last == nil: // another look follows the first migration
	case *last != nil:
		set(v1beta1.BundleStorageMigrated, false, v1beta1.ReasonMigrationFailed, (*last).Error())
	default:
		set(v1beta1.BundleStorageMigrated, true, v1beta1.ReasonMigrated, "all objects are stored in the newest version")
	}
}
