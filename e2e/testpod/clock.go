// SPDX-License-Identifier: Apache-2.0

package main

// inClock is the command that clock runs to have its program traced from the beginning.
const inClock = "in-clock"
