// SPDX-License-Identifier: Apache-2.0

// Package operator is fairlead-operator: it keeps a cluster as its Bundle says.
//
// Start with [Run]. It makes the certificates of the conversion webhook ([certificates]),
// serves the webhook, writes the webhook's CA into the CustomResourceDefinitions, and only
// then starts controller-runtime's manager. So every replica converts, also before it leads,
// and the API server never calls a webhook whose CA it does not know: definitions that
// `fairlead install --operator` has created name the webhook before that, without a CA, and
// calls fail until then. The operator itself reads the storage version only (decode.go), and
// needs the webhook only for objects that are still stored in an old version, which the leader
// rewrites (keeper.go).
//
// [BundleReconciler] calls pkg/bundle.Render and pkg/install, as the command
// `fairlead install` does, so both make the same objects, and the operator adopts what the
// command installed. It owns objects in the cluster; it never changes files of control plane
// nodes. Deleting the Bundle leaves all objects, which `fairlead uninstall` deletes, unless its
// deletionPolicy is Delete (deletion.go).
// [ProfileReconciler] reports on SchedulerProfiles, which are part of the Bundle's
// configuration, and [PoolReconciler] runs the agents of TunnelPools.
//
// Package pkg/bundle/operator renders the operator, and `fairlead install --operator`
// installs it.
package operator
