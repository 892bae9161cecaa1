// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Party is the command that installs a bundle into a cluster. Each has its own field
// manager and its own inventory, so that none deletes or takes over what another one
// has installed.
type Party string

const (
	// Command is `fairlead install`, the default. The operator applies the Bundle under this
	// name, so that each continues what the other began.
	Command Party = ""
	// Provider is `fairlead up`, which installs the bundle of the cluster that it
	// creates.
	Provider Party = "up"
	// Operator is `fairlead install --operator`, which installs the operator.
	Operator Party = "operator"
	// Pools is the operator where it applies the agents of TunnelPools.
	Pools Party = "pools"
)

// parties are all of them, with what each installs.
var parties = []struct {
	party   Party
	belongs string
}{
	{Command, "the bundle of `fairlead install`"},
	{Provider, "the bundle of `fairlead up`"},
	{Operator, "the operator of `fairlead install --operator`"},
	{Pools, "a TunnelPool"},
}

// FieldManager is the name under which the party owns fields.
func (p Party) FieldManager() string { return FieldManager + p.suffix() }

// Inventory is the ConfigMap in kube-system that lists what the party installed.
func (p Party) Inventory() string { return InventoryName + p.suffix() }

func (p Party) suffix() string {
	if p == Command {
		return ""
	}
	return "-" + string(p)
}

// IsApplied reports whether any party has applied an object.
func IsApplied(live metav1.Object) bool {
	for _, p := range parties {
		if p.party.applied(live.GetManagedFields()) {
			return true
		}
	}
	return false
}

// otherParty returns another party that has applied the object, and what that installs.
func (c *client) otherParty(live metav1.Object) (other Party, belongs string, found bool) {
	for _, p := range parties {
		if p.party != c.party && p.party.applied(live.GetManagedFields()) {
			return p.party, p.belongs, true
		}
	}
	return "", "", false
}

// contested returns a problem for an object that another party has applied. Force
// does not help: two inventories that list one object would each delete it.
func (c *client) contested(live *unstructured.Unstructured, inv *inventory, e Entry) *Problem {
	other, belongs, found := c.otherParty(live)
	if !found {
		return nil
	}
	p := &Problem{Object: RefOf(live), Reason: ReasonOtherBundle, Message: "belongs to " + belongs}
	switch {
	case other == Provider && c.party == Command:
		p.Message = "belongs to the bundle of `fairlead up`, which made this cluster"
		p.Hint = "install a bundle whose objects have other names: set scheduler.name or namespace, leave out the part that the cluster has (konnectivity.enabled: false, scheduler.enabled: false), or make the cluster with this bundle: `fairlead down`, then `fairlead up -f`"
	case other != Command || c.party != Provider:
		p.Hint = "rename one of the two"
	case inv.stored == nil, c.ours(live, e):
		// Before there were two inventories, up applied objects as the command does. It
		// continues to own what it has created.
		return nil
	default:
		p.Message = "belongs to the bundle that `fairlead install` installed"
		p.Hint = "run `fairlead uninstall` first, or install that bundle under other names"
	}
	return p
}

// sharedWith returns why an object of this party must not be deleted, or "" if it can
// be.
func (c *client) sharedWith(live metav1.Object) string {
	other, belongs, found := c.otherParty(live)
	switch {
	case !found:
		return ""
	case other == Command:
		return fmt.Sprintf("it belongs to the bundle of `fairlead install`, too (inventory %s)", other.Inventory())
	}
	return "it belongs to " + belongs + ", too"
}

// orphaned reports whether the TunnelPool of agents was deleted with `--cascade=orphan`: the garbage
// collector has taken the reference to it, and the agents are the user's.
func (c *client) orphaned(live metav1.Object) bool {
	return c.party == Pools && metav1.GetControllerOf(live) == nil
}
