// SPDX-License-Identifier: Apache-2.0

package link

import "sync/atomic"

// Budget is a number of bytes that streams share.
type Budget struct {
	whole int64
	left  atomic.Int64
}

// NewBudget returns a budget of n bytes.
func NewBudget(n int64) *Budget {
	b := &Budget{whole: n}
	b.left.Store(n)
	return b
}

func (b *Budget) take(n int) bool {
	if b.left.Add(-int64(n)) >= 0 {
		return true
	}
	b.left.Add(int64(n))
	return false
}

// has reports whether half of the budget is left behind n bytes.
func (b *Budget) has(n int) bool { return b.left.Load()-int64(n) >= b.whole/2 }

func (b *Budget) give(n int) { b.left.Add(int64(n)) }
