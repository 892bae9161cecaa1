// SPDX-License-Identifier: Apache-2.0

// Package calc is what the tests of mutants change.
package calc

// Limit is tested.
var Limit = 10
