// SPDX-License-Identifier: Apache-2.0

// Package observe reads what can be known about a cluster, its tunnel and its schedulers without changing anything: objects, TLS handshakes,
// health endpoints, metrics and, on a control plane node, files.
//
// Start at [Collect]. It fills a [Snapshot], in which each [Fact] is a value or the reason why the value is unknown, so that one source that
// fails does not hide the others. Package rules judges a Snapshot ("fairlead check"), package overview summarizes it ("fairlead status"), and
// package sysdump stores it ("fairlead sysdump"). Package check, in contrast, proves by doing: it creates Pods and calls them.
//
// Programs are recognized by their flags and not by their names, so a tunnel that another installer has made of upstream's programs looks the
// same as Fairlead's; see programs.go.
package observe
