// Package bundle is the core of fairlead: a configuration in, typed Kubernetes
// objects and files out. It is pure: it and the packages below it read no files,
// know no clock and have no client (a test checks their imports).
//
// Start with [Load], which reads a configuration, and [Render], which makes the
// [Output]. What is inside comes from one package per part:
//
//   - v1alpha1: the configuration's types, defaults and rules
//   - component: one description of a program, rendered as static Pod, DaemonSet,
//     Deployment or local process
//   - scheduler, konnectivity, egress, aggregation: the parts
//   - rbac, pki: what the parts are made of
package bundle
