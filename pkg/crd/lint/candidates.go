// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"math"
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	// maxSamples bounds the strings that are made of one pattern.
	maxSamples = 200
	// maxRepeat bounds the length of the strings that are tried.
	maxRepeat = 4096
)

// candidates are values at the limits of two schemas.
func candidates(old, current *props) (all []any) {
	for _, s := range []*props{old, current} {
		for _, raw := range s.Enum {
			var v any
			if json.Unmarshal(raw.Raw, &v) != nil {
				continue
			}
			if f, ok := v.(float64); ok {
				all = append(all, numbers(f)...)
			} else {
				all = append(all, v)
			}
		}
	}
	if len(old.Enum) > 0 {
		return all
	}
	if old.Type == "boolean" {
		return []any{true, false}
	}
	if old.Type != "string" {
		all = append(all, limits(old, current)...)
	}
	if old.Type == "" || old.Type == "string" {
		for _, s := range texted(old, current) {
			all = append(all, s)
		}
	}
	return all
}

// numbers are the forms in which the API server holds a number.
func numbers(f float64) []any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return []any{int64(f), f}
	}
	return []any{f}
}

// limits are numbers around the limits of two schemas.
func limits(old, current *props) (all []any) {
	around := []float64{0, 1, 2, 3, math.MaxInt32 + 1, math.MinInt32 - 1, 1e19, -1e19, 1e300, 0.5}
	steps := []float64{1}
	for _, s := range []*props{old, current} {
		for _, p := range []*float64{s.Maximum, s.Minimum} {
			if p != nil {
				around = append(around, *p, *p+0.5, *p-0.5)
			}
		}
		if s.MultipleOf != nil && *s.MultipleOf > 0 {
			steps = append(steps, *s.MultipleOf)
		}
	}
	for _, step := range steps {
		for _, a := range around {
			for k := -2.0; k <= 2; k++ {
				all = append(all, numbers(math.Floor(a/step)*step+k*step)...)
			}
			all = append(all, numbers(a)...)
		}
	}
	return append(all, int64(math.MaxInt64), int64(math.MinInt64))
}

// ofFormats are values of the formats that the API server checks.
var ofFormats = []string{
	"2006-01-02T15:04:05Z", "2006-01-02", "22ns", "1h", "127.0.0.1", "::1", "10.0.0.0/8", "00:00:5e:00:53:01", "a@example.com", "http://example.com/a", "/a",
	"example.com", "550e8400-e29b-41d4-a716-446655440000", "a3bb189e-8bf9-3888-9912-ace4e6543002", "886313e1-3b8a-5372-9b90-0c9aee199e5d", "0321751043",
	"978-0321751041", "4111111111111111", "123-45-6789", "#FFFFFF", "rgb(1,2,3)", "YQ==", "507f1f77bcf86cd799439011",
}

// texted are strings at the limits of two schemas, and of their patterns.
func texted(old, current *props) []string {
	all := slices.Concat([]string{"", "\n", "é", "aA", "a-b", "a.b", "a b", "a/b", "-1"}, ofFormats)
	for c := ' '; c <= '~'; c++ {
		all = append(all, string(c))
	}
	lengths := []int{0, 1, 2}
	for _, s := range []*props{old, current} {
		for _, p := range []*int64{s.MaxLength, s.MinLength} {
			if p == nil || *p > maxRepeat {
				continue
			}
			for n := max(0, int(*p)-1); n <= int(*p)+1; n++ {
				lengths = append(lengths, n)
			}
		}
	}
	slices.Sort(lengths)
	for _, n := range slices.Compact(lengths) {
		all = append(all, strings.Repeat("a", n))
		for _, s := range []*props{old, current} {
			if re := parsed(s.Pattern); re != nil {
				all = append(all, samples(re, n)...)
			}
		}
	}
	return all
}

func parsed(pattern string) *syntax.Regexp {
	if pattern == "" {
		return nil
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	return re
}

// samePattern reports whether two patterns differ in spelling alone. Other patterns can
// still match the same strings.
func samePattern(old, current string) bool {
	o, n := parsed(old), parsed(current)
	return o != nil && n != nil && uncaptured(o).Simplify().String() == uncaptured(n).Simplify().String()
}

// uncaptured removes the groups, which do not change what a pattern matches.
func uncaptured(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	for i, sub := range re.Sub {
		re.Sub[i] = uncaptured(sub)
	}
	return re
}

// samples are strings of a pattern, in which repetitions without a limit have n parts. The
// caller checks them: anchors and word boundaries are left out.
func samples(re *syntax.Regexp, n int) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCharClass:
		var all []string
		for i := 0; i+1 < len(re.Rune) && i < 20; i += 2 {
			all = append(all, string(re.Rune[i]), string(re.Rune[i+1]))
		}
		return all
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"a", "-", " ", "0"}
	case syntax.OpCapture:
		return samples(re.Sub[0], n)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, samples(sub, n)...)
		}
		return all[:min(len(all), maxSamples)]
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			all = joined(all, samples(sub, n))
		}
		return all
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least, most := repeats(re, n)
		var all []string
		parts := samples(re.Sub[0], 1)
		for _, times := range slices.Compact([]int{least, min(max(least, n), most), most}) {
			for _, s := range parts {
				all = append(all, strings.Repeat(s, times))
			}
		}
		return all[:min(len(all), maxSamples)]
	}
	return []string{""}
}

// repeats returns how often the part of a repetition stands in samples.
func repeats(re *syntax.Regexp, n int) (least, most int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, max(1, n)
	case syntax.OpPlus:
		return 1, max(1, n)
	case syntax.OpQuest:
		return 0, 1
	}
	if re.Max < 0 {
		return re.Min, max(re.Min, n)
	}
	return re.Min, re.Max
}

// joined combines beginnings and ends: each of them once, if all pairs are too many.
func joined(heads, tails []string) []string {
	var all []string
	if len(heads) == 0 || len(tails) == 0 {
		return nil
	}
	if len(heads)*len(tails) <= maxSamples {
		for _, h := range heads {
			for _, t := range tails {
				all = append(all, h+t)
			}
		}
		return all
	}
	for i := range max(len(heads), len(tails)) {
		all = append(all, heads[i%len(heads)]+tails[i%len(tails)])
	}
	return all
}
