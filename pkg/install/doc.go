// SPDX-License-Identifier: Apache-2.0

// Package install applies rendered objects to a cluster, shows what that would change,
// and uninstalls them. The commands install, diff and uninstall are thin clients of it,
// and the providers use it as well.
//
// Start with [Apply]; [Diff], [Uninstall] and [Preflight] are the other entry points.
//
// # How it works
//
// Apply reads the inventory and sends a server-side dry run of every object. If it finds
// problems, it returns all of them before anything is changed. Then it writes the
// inventory, applies the objects in order, deletes what the inventory of an older bundle
// lists and this one lacks, writes the inventory again and waits for rollouts. It can be
// killed at any point: the inventory lists an object before the object exists, so the
// next run completes the work. A Lease serializes concurrent runs.
//
// # Ownership
//
// An object is fairlead's if the API server's own record, the object's managed fields,
// says that manager "fairlead" has applied it. Objects need no label for that, so
// `kubectl apply`, kustomize and Helm can create the same objects, and copying a label
// never gets an object deleted. Apply neither changes nor deletes an object that is not
// fairlead's. It adopts an object of the same name if that already matches the bundle,
// as after `kubectl apply -f manifests/`; otherwise it adopts the object only with
// Force.
//
// One cluster can have the bundle of `fairlead up` and that of `fairlead install`. Each
// [Party] has its own field manager and its own inventory, and an object that is in both
// bundles is refused. A party may find objects in its inventory that the other party has
// taken over since: it releases them instead of deleting them.
//
// The inventory is the ConfigMap kube-system/fairlead-inventory. ApplySets (KEP-3659)
// are no alternative: they need a label on every object, they list every kind in every
// namespace to find what to prune, and in kubectl they never left alpha. A list of names
// costs one read, and together with the managed fields it is safe even when it is stale.
// It is in kube-system whatever the bundle's namespace is, so that the next bundle finds
// it even if that bundle has another namespace.
//
// # Why this is not a library
//
// github.com/fluxcd/pkg/ssa is the closest one. It always forces conflicts, which must
// be shown here instead. It has neither inventory nor lock, and it brings
// controller-runtime and a fork of cli-utils (its releases follow another Kubernetes
// minor version than ours). kubectl's apply is a command, not a library. The rest comes
// from client-go: the dynamic client, leader election as the lock, csaupgrade for
// objects that kubectl has created.
package install
