// SPDX-License-Identifier: Apache-2.0

// Package migrate rewrites the stored objects of a CustomResourceDefinition in its storage
// version, so that an older version can be dropped.
//
// Start at [Run]. It plans (plan.go), asks for the permissions (rights.go), rewrites by the
// API server's own controller if storagemigration.k8s.io is served (controller.go) or by an
// empty patch of every object (rewrite.go), removes managedFields of versions that are not
// served (managedfields.go), and takes the old versions out of status.storedVersions
// (stored.go). Any failure before the last step leaves status.storedVersions as it was.
//
// A run that was interrupted needs no state to go on: the API server writes an object only
// if its stored form changes, so that a second run writes what the first one has left.
//
// # Why this is not a library
//
// The migrators of Cluster API and Crossplane are parts of their controllers, and the
// external storage version migrator is not maintained any more; it also leaves managedFields
// and status.storedVersions to the administrator.
package migrate
