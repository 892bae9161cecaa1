// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Reasons of conditions. docs/api.md lists them; no other is set.
const (
	// ReasonAsWanted: the cluster is as the object says.
	ReasonAsWanted = "AsWanted"
	// ReasonInvalidBundle: the spec of the Bundle is not valid, so nothing was changed.
	ReasonInvalidBundle = "InvalidBundle"
	// ReasonDrift: objects differ, and managementPolicy is Observe.
	ReasonDrift = "Drift"
	// ReasonBlocked: objects or fields belong to others, or the change would cut the tunnel.
	ReasonBlocked = "Blocked"
	// ReasonUninstalling: the Bundle is being deleted, and the operator removes what it brought.
	ReasonUninstalling = "Uninstalling"
	// ReasonWaiting: another run of `fairlead install` changes the cluster.
	ReasonWaiting = "Waiting"
	// ReasonFailed: a request failed, and the operator tries again.
	ReasonFailed = "Failed"
	// ReasonAvailable: agents are ready.
	ReasonAvailable = "Available"
	// ReasonNotReady: no agent is ready.
	ReasonNotReady = "NotReady"
	// ReasonDisabled: the Bundle has not got this part.
	ReasonDisabled = "Disabled"
	// ReasonLeading: a replica of the scheduler leads.
	ReasonLeading = "Leading"
	// ReasonNoLeader: no replica of the scheduler renews the Lease.
	ReasonNoLeader = "NoLeader"
	// ReasonRolledOut: all workloads run what was applied.
	ReasonRolledOut = "RolledOut"
	// ReasonRollingOut: workloads start or replace Pods.
	ReasonRollingOut = "RollingOut"
	// ReasonCertificatesValid: the certificates are valid and are renewed in time.
	ReasonCertificatesValid = "Valid"
	// ReasonCertificatesExpired: a certificate has expired.
	ReasonCertificatesExpired = "Expired"
	// ReasonCertificatesNotYetValid: a certificate is not valid yet, because a clock is wrong.
	ReasonCertificatesNotYetValid = "NotYetValid"
	// ReasonRenewalFailed: the certificates are valid, and the last renewal failed.
	ReasonRenewalFailed = "RenewalFailed"
	// ReasonConfigured: all API servers use the tunnel.
	ReasonConfigured = "Configured"
	// ReasonNoEgressSelector: an API server does not use the tunnel.
	ReasonNoEgressSelector = "NoEgressSelector"
	// ReasonServerCount: there are more API servers than agents connect to.
	ReasonServerCount = "ServerCount"
	// ReasonNotVisible: no Pod of an API server is visible.
	ReasonNotVisible = "NotVisible"
	// ReasonMigrated: no object is stored in an old version.
	ReasonMigrated = "Migrated"
	// ReasonMigrationFailed: an object that is stored in an old version could not be rewritten.
	ReasonMigrationFailed = "MigrationFailed"
	// ReasonAccepted: the spec is valid, and is part of what the operator applies.
	ReasonAccepted = "Accepted"
	// ReasonInvalid: the spec is not valid together with the Bundle.
	ReasonInvalid = "Invalid"
	// ReasonNameConflict: another profile has the schedulerName.
	ReasonNameConflict = "NameConflict"
	// ReasonNoBundle: there is no Bundle, so nothing is applied.
	ReasonNoBundle = "NoBundle"
	// ReasonProgrammed: a scheduler that has loaded the profile runs and leads.
	ReasonProgrammed = "Programmed"
	// ReasonNotAccepted: the object is not accepted, so it has no effect.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNotApplied: the operator has not applied the object yet, or may not.
	ReasonNotApplied = "NotApplied"
)
