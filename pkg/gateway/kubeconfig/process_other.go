// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package kubeconfig

// startOf returns nothing, as this system does not tell when a process has started.
func startOf(int) string { return "" }

// boot returns nothing, as this system does not tell when it has started.
func boot() string { return "" }
