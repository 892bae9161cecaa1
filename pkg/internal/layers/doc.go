// SPDX-License-Identifier: Apache-2.0

// Package layers has only a test: which packages of this module each part may link, directly or not, and which
// large libraries the programs on nodes do without. Data flows one way: a bundle is rendered (bundle), applied
// (install, controlplane, cluster) and observed (check, observe); the programs know none of these.
package layers
