// SPDX-License-Identifier: Apache-2.0

// Package sysdump writes one archive with what others need to find a fault in a cluster that they cannot reach.
//
// Start at [Write]. It contains only what is on a list: of objects the fields in fields.go, of ConfigMaps only schedulers' configurations, and
// logs of the tunnel's programs and the second scheduler alone. It never reads a Secret. Text that may quote anything, such as logs and
// messages, passes redact.Text as well. The archive lists what could not be collected and why.
package sysdump
