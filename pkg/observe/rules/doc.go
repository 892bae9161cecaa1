// SPDX-License-Identifier: Apache-2.0

// Package rules judges what package observe has read: each [Rule] has a stable ID, and says what is wrong and how to fix it.
//
// Start at [All], the list of rules, and [Judge], which applies them to a Snapshot. A rule is a pure function: to add one, write it in the file
// of its group, add it to that file's list with the next free number, add the ID to testdata/ids.txt, and add a case to the group's test that
// breaks only what the rule looks at. An ID is never used again: a rule that goes moves to [Retired].
package rules
