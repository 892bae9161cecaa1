// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// serviceKeys are keys of well-known services, which their prefix tells.
	serviceKeys = regexp.MustCompile(`\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}\b|` +
		`(?:gh[pousr]_|github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct)-|npm_|pypi-|dckr_[po]at_|hf_|` +
		`hv[sbr]\.|ya29\.|AIza|AGE-SECRET-KEY-1|dop_v1_|shpat_|whsec_|[rs]k_(?:live|test)_|xapp-|xox[abeprs]-)[A-Za-z0-9_.~+/-]{10,}|` +
		`sk-[A-Za-z0-9_-]{16,}|SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}|[a-z0-9]{6}\.[a-z0-9]{16}\b)`)
	// curlUser is a user with a password as an argument. Other programs take a user and a group after -u.
	curlUser = regexp.MustCompile(`(\b(?:curl|wget)\b[^\n]*?\s(?:-[A-Za-z]*[uU]|--(?:proxy-)?user)[ =]?["']?[^\s:"'-][^\s:"']*:)[^\s"']+`)
	// userInfo is a user with a password before a host, without a scheme.
	userInfo = regexp.MustCompile(`([A-Za-z0-9_.+-]+):([^\s:/@"'\[\]]+)@([A-Za-z0-9][A-Za-z0-9.-]*)`)
	// awsSecret has 40 characters and no prefix.
	awsSecret = regexp.MustCompile(`(^|[^A-Za-z0-9/+=_-])([A-Za-z0-9+][A-Za-z0-9/+]{39})($|[^A-Za-z0-9/+=_-])`)
	// statement says what a password is, or gives it for a user; mention is a name with a value behind it.
	statement = regexp.MustCompile(`(?i)\b((?:password|passwd|passphrase|passcode|secret|token|api[_-]?key)(?:[ \t]+(?:is|was)[ \t]+|[ \t]+(?:for|of)[ \t]+[^\s:][^\n:]{0,60}:[ \t]+)["']?)([^\s"']+)`)
	mention   = regexp.MustCompile(`(?i)\b(` + credentialWords + `[ \t]+["']?)([^\s"']+)`)
	phrases   = regexp.MustCompile(`(?i)(?:password|passwd|passphrase)[ \t]+["']?$`)
)

// states are words that say something of a credential: "the password is wrong".
var states = strings.Fields(`a an the not no too set unset empty missing required needed wrong incorrect correct invalid valid bad expired unknown used unused given
	changed read written rotated refused rejected denied accepted ignored malformed mounted created deleted found in of for from at to by never only still already
	bound about longer shorter stored kept redacted <nil> nil null true false`)

// prose drops credentials that only their own form or the words before them tell.
func prose(text string) string {
	text = serviceKeys.ReplaceAllString(text, Mark)
	text = curlUser.ReplaceAllString(text, "${1}"+Mark)
	text = replace(userInfo, text, func(m []string) string {
		if m[3] == "sha256" || m[3] == "sha512" || strings.EqualFold(m[1], "mailto") {
			return m[0] // the digest of an image, and an address of mail
		}
		return m[1] + ":" + Mark + "@" + m[3]
	})
	text = replace(awsSecret, text, func(m []string) string {
		if !strings.ContainsAny(m[2], lower) || !strings.ContainsAny(m[2], upper) || !strings.ContainsAny(m[2], digits) || strings.Count(m[2], "/") > 3 {
			return m[0]
		}
		return m[1] + Mark + m[3]
	})
	text = replace(statement, text, func(m []string) string {
		word := strings.Trim(m[2], ".,;:!?()")
		if word == "" || strings.HasPrefix(m[2], "[") || slices.Contains(states, strings.ToLower(word)) {
			return m[0]
		}
		return m[1] + Mark
	})
	return replace(mention, text, func(m []string) string {
		length := 8
		if phrases.MatchString(m[1]) {
			length = 4
		}
		if !random(m[2], length) {
			return m[0]
		}
		return m[1] + Mark
	})
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// random reports whether a word looks like a credential and not like a word, a path, an assignment, a flag or a version.
func random(word string, length int) bool {
	word = strings.TrimRight(word, ".,;:!?)")
	return len(word) >= length && strings.ContainsAny(word, digits) && strings.ContainsAny(strings.ToLower(word), lower) && !strings.ContainsAny(word, "/=:[]{}<>(") && !strings.HasPrefix(word, "-")
}

// replace calls with for each match, with the match and its groups.
func replace(find *regexp.Regexp, text string, with func([]string) string) string {
	return find.ReplaceAllStringFunc(text, func(match string) string { return with(find.FindStringSubmatch(match)) })
}
