// SPDX-License-Identifier: Apache-2.0

// Package operator renders fairlead-operator: the CustomResourceDefinitions of group
// fairlead.dev, and the Deployment that keeps a cluster as its Bundle says.
//
// Start with [Objects]. The operator is not part of the Bundle that it applies, because an
// operator that installs itself cannot repair itself: a Bundle with an image that does not
// start would stop the only program that reads the next Bundle. `fairlead install --operator`
// installs it, and `fairlead render operator` prints the same objects.
//
// # Certificates
//
// Nothing here has a key. The operator makes the CA and the certificate of its conversion
// webhook when it starts, renews both without a restart, and writes the CA into the
// definitions. Until then the API server refuses to convert: the definitions name the
// webhook, so no field of an old version can be lost in between.
//
// # Rights
//
// [ClusterRole] has no wildcard and neither of the verbs escalate and impersonate. Kubernetes
// lets a user grant only the rights that the user has, so the operator has every right that a bundle's
// roles grant; those are taken from the rendered roles themselves. The roles of Kubernetes that
// bundles bind are named in rules with the verb bind. Objects whose names are the same in all
// bundles are named, also for the verb create: server-side apply creates an object by a request
// that has its name, unlike a POST. A Role in kube-system and one in the operator's namespace have
// the rest. The file testdata/rights.txt lists all rules.
//
// The operator can create Pods and bindings in all namespaces, as a Bundle may name any. So
// a user who can create Pods in the operator's namespace can become an administrator of the
// cluster. Give the right to change Bundles and TunnelPools, which name images, to
// administrators only.
package operator
