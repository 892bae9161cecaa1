// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// InventoryName is the ConfigMap in kube-system that lists what `fairlead install`
	// has installed; Party has those of other commands.
	InventoryName = "fairlead-inventory"
	inventoryKey  = "inventory.json"
)

// ErrInventory is returned for an inventory that fairlead did not write.
var ErrInventory = errors.New("cannot use the inventory")

// Entry is an object in the inventory.
type Entry struct {
	Ref `json:",inline"`
	// UID is that of the object as applied; empty until then.
	UID types.UID `json:"uid,omitempty"`
	// Adopted means that fairlead did not create the object.
	Adopted bool `json:"adopted,omitempty"`
}

// Lease identifies a Lease that an installed program creates itself and leaves behind.
type Lease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// HolderPrefix is the prefix of every holder identity that the program uses. It
	// distinguishes the program's Lease from one that another program holds.
	HolderPrefix string `json:"holderPrefix"`
}

// inventory lists what was installed, in the order of application.
type inventory struct {
	Objects []Entry `json:"objects"`
	Leases  []Lease `json:"leases,omitempty"`

	// stored is the ConfigMap as read, nil if there is none.
	stored *corev1.ConfigMap
}

// readInventory returns an empty inventory if there is none.
func (c *client) readInventory(ctx context.Context) (*inventory, error) {
	cm, err := c.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, c.party.Inventory(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &inventory{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the inventory: %w", err)
	}
	inv := &inventory{stored: cm}
	if err := json.Unmarshal([]byte(cm.Data[inventoryKey]), inv); err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s/%s does not hold one: %w: if it is none of fairlead's, rename it; else delete it and install again",
			ErrInventory, cm.Namespace, cm.Name, err)
	}
	return inv, nil
}

// writeInventory replaces the ConfigMap that inv was read from. It fails with a
// conflict if another client has written it since, and writes nothing if nothing
// differs.
func (c *client) writeInventory(ctx context.Context, inv *inventory) error {
	data, err := json.MarshalIndent(inv, "", " ")
	if err != nil {
		return fmt.Errorf("encode the inventory: %w", err)
	}
	maps := c.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if inv.stored == nil {
		inv.stored, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: c.party.Inventory(), Namespace: metav1.NamespaceSystem},
			Data:       map[string]string{inventoryKey: string(data)},
		}, metav1.CreateOptions{FieldManager: c.party.FieldManager()})
	} else if inv.stored.Data[inventoryKey] != string(data) {
		cm := inv.stored.DeepCopy()
		cm.Data = map[string]string{inventoryKey: string(data)}
		inv.stored, err = maps.Update(ctx, cm, metav1.UpdateOptions{FieldManager: c.party.FieldManager()})
	}
	if err != nil {
		return fmt.Errorf("write the inventory: %w", err)
	}
	return nil
}

// deleteInventory deletes the ConfigMap that inv was read from.
func (c *client) deleteInventory(ctx context.Context, inv *inventory) error {
	if inv.stored == nil {
		return nil
	}
	err := c.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, c.party.Inventory(),
		metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(inv.stored.ResourceVersion).Preconditions})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the inventory: %w", err)
	}
	return nil
}

// entry finds an object in the inventory.
func (inv *inventory) entry(r Ref) (Entry, bool) {
	for _, e := range inv.Objects {
		if e.key() == r.key() {
			return e, true
		}
	}
	return Entry{}, false
}

// with returns an inventory with other contents and inv's ConfigMap.
func (inv *inventory) with(objects []Entry, leases []Lease) *inventory {
	return &inventory{Objects: objects, Leases: leases, stored: inv.stored}
}

// union returns a, followed by the elements of b that a lacks.
func union[T any](a, b []T, same func(x, y T) bool) []T {
	out := append([]T{}, a...)
next:
	for _, y := range b {
		for _, x := range a {
			if same(x, y) {
				continue next
			}
		}
		out = append(out, y)
	}
	return out
}

func sameObject(a, b Entry) bool { return a.key() == b.key() }

func sameLease(a, b Lease) bool { return a == b }
