// SPDX-License-Identifier: Apache-2.0

// Package kubectldocs has only a test: the kubectl commands of the documentation are parsed by kubectl's own commands, and what they name is in
// what Fairlead renders. It is in this module because kubectl has dependencies that nothing else needs.
package kubectldocs
