// SPDX-License-Identifier: Apache-2.0

// Package kubernetes runs specs of Kubernetes' own e2e suite against a cluster of "fairlead up --provider kind".
package kubernetes
