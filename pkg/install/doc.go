// Package install brings rendered objects into a cluster, shows what that would
// change, and takes them out again. The commands install, diff and uninstall are
// thin clients of it, and the providers use it, too.
//
// Start with [Apply]; [Diff], [Uninstall] and [Preflight] stand beside it.
//
// # How it works
//
// Apply reads the inventory, asks the API server by a server-side dry run what
// every single object would become, and stops with all problems it found before
// anything is changed. Then it writes the inventory, applies the objects in order,
// deletes what the inventory of an older bundle lists and this one lacks, writes
// the inventory again and waits for rollouts. It can be killed at any point: the
// inventory lists an object before it exists, so the next run completes the work.
// Runs at the same time go one after the other by a Lease.
//
// # What is ours
//
// An object is fairlead's if the API server's own record of it, its managed
// fields, says that manager "fairlead" has applied it. No label has to be put on
// objects for that, so that `kubectl apply`, kustomize and Helm make the very same
// ones, and nobody can get an object deleted by copying a label. What is not ours
// is neither changed nor deleted: an object of the same name is taken over if it
// already is what the bundle says, as after `kubectl apply -f manifests/`, and
// else only when told to.
//
// The inventory is the ConfigMap kube-system/fairlead-inventory. ApplySets
// (KEP-3659) were looked at: they need a label on every object and list every
// kind of every namespace to find what to prune, and kubectl never took them out
// of alpha. A list of names costs one read, and together with the managed fields
// it is safe even when it is stale. It lives in kube-system whatever the bundle's
// namespace is, so that one is found that the next bundle no longer has.
//
// # Why this is not a library
//
// github.com/fluxcd/pkg/ssa is the nearest one. It always forces conflicts, which
// are to be shown here instead, has neither inventory nor lock, and brings
// controller-runtime and a fork of cli-utils (its releases follow another
// Kubernetes minor than ours). kubectl's apply is a command, not a library.
// What is left is used from client-go: dynamic client, leader election as the
// lock, csaupgrade for objects that kubectl has made.
package install
