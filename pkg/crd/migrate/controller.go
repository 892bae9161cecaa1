// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errNotServed says that the API server does not serve storagemigration.k8s.io.
var errNotServed = errors.New("the API server does not serve storagemigration.k8s.io/v1beta1: use method patch, or enable the API and the feature gate StorageVersionMigrator")

const pollInterval = time.Second

// byController has kube-controller-manager rewrite the objects.
func (m *Migrator) byController(ctx context.Context, p *plan) error {
	if _, err := m.kube.Discovery().ServerResourcesForGroupVersion(storagemigrationv1beta1.SchemeGroupVersion.String()); err != nil {
		if apierrors.IsNotFound(err) {
			return errNotServed
		}
		return fmt.Errorf("look for storagemigration.k8s.io: %w", err)
	}
	client := m.kube.StoragemigrationV1beta1().StorageVersionMigrations()
	migration, err := client.Create(ctx, &storagemigrationv1beta1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fairlead-"},
		Spec:       storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: p.resource.Group, Resource: p.resource.Resource}},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("create a StorageVersionMigration: %w", err)
	}
	err = m.await(ctx, migration.Name)
	// The object is of no use any more; one that still runs is left to finish if the run is interrupted.
	if ctx.Err() == nil {
		if deleteErr := client.Delete(ctx, migration.Name, metav1.DeleteOptions{}); deleteErr != nil && !apierrors.IsNotFound(deleteErr) {
			err = errors.Join(err, fmt.Errorf("delete StorageVersionMigration %s: %w", migration.Name, deleteErr))
		}
	}
	return err
}

// await returns nil once the migration has succeeded.
func (m *Migrator) await(ctx context.Context, name string) error {
	begin := time.Now().Add(m.options.ControllerWait)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		migration, err := m.kube.StoragemigrationV1beta1().StorageVersionMigrations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get StorageVersionMigration %s: %w", name, err)
		}
		conditions := migration.Status.Conditions
		switch {
		case meta.IsStatusConditionTrue(conditions, string(storagemigrationv1beta1.MigrationSucceeded)):
			return nil
		case meta.IsStatusConditionTrue(conditions, string(storagemigrationv1beta1.MigrationFailed)):
			failed := meta.FindStatusCondition(conditions, string(storagemigrationv1beta1.MigrationFailed))
			return fmt.Errorf("StorageVersionMigration %s failed: %s: %s", name, failed.Reason, failed.Message)
		case len(conditions) == 0 && time.Now().After(begin):
			return fmt.Errorf("no controller took up StorageVersionMigration %s within %v: enable the feature gate StorageVersionMigrator of kube-controller-manager", name, m.options.ControllerWait)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
