// SPDX-License-Identifier: Apache-2.0

// Package report prints the results of checks: as text for people, as one JSON document, or as JUnit XML for continuous integration.
package report
