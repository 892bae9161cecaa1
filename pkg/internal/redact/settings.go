// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"strings"
)

const (
	// credentialWords match the name of a flag, field or variable that holds a credential. A short word has to be a word of the name.
	credentialWords = `(?:[a-z0-9_.-]*(?:password|passwd|passphrase|passcode|secret|token|jwt|credential|key[_-]?data|` +
		`(?:api|access|account|certificate|encryption|master|private|secret|shared|signing)[_-]?key)s?` +
		`|(?:[a-z0-9_.-]*[_.-])?(?:pass|pwd|auth|psk|otp|sig|signature)|[a-z0-9_.-]*(?-i:[a-z0-9](?:Pass|Pwd|Auth|Psk)))`
	// headerWords match headers whose whole value is a credential.
	headerWords = `(?:(?:[a-z0-9_.-]*[_.-])?(?:authorization|cookie))`
)

var (
	credentialName = regexp.MustCompile(`(?i)^` + credentialWords + `$`)
	// setting is what stands before a credential: its name (2, 3) with quotation marks (1, 4), also those of JSON in a string, and a separator (5).
	setting = regexp.MustCompile(`(?i)(\\*["'])?(?:\\[nrt]|\b)(?:(` + headerWords + `)|(` + credentialWords + `))(\\*["'])?[ \t]*(=>|:=|[=:])[ \t]*`)
	// variable is an environment variable as a pair of fields.
	variable = regexp.MustCompile(`(?i)\bname(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?` + credentialWords + `(?:\\*["'])?[,\s]\s*` + stamp + `\s*(\\*["'])?value(\\*["'])?\s*[:=][ \t]*`)
	opening  = regexp.MustCompile("^\\\\*[\"'`]")
	literal  = regexp.MustCompile(`^(?:true|false|null|nil|<nil>|exec:)(?:[\s,;}\])"'\\]|$)`)
	// unquoted and inJSON are values without quotation marks.
	unquoted = regexp.MustCompile(`^(?:[^\s"'\\]|\\[^"'\\]|\\+[^\s"'\\])+`)
	// braces are what an object begins with, also without a quoted name before it.
	braces = regexp.MustCompile(`^\{\s*(?:\\*["']|\})`)
	inJSON = regexp.MustCompile(`^[^\s,}\]]+`)
	// block is what stands in YAML for a value in the lines below.
	block   = regexp.MustCompile(`^(?:[|>][0-9+-]*)?[ \t]*(?:#[^\n]*)?\r?\n`)
	stamped = regexp.MustCompile(`^` + stamp)
)

// IsName reports whether a variable, flag or field of this name holds a credential.
func IsName(name string) bool { return credentialName.MatchString(name) }

// settings drops the values of settings, flags, fields and headers whose name says that they are credentials.
func settings(text string) string {
	for _, find := range []*regexp.Regexp{variable, setting} {
		var out strings.Builder
		done := 0
		for {
			m := find.FindStringSubmatchIndex(text[done:])
			if m == nil {
				break
			}
			begin := done + m[1]
			length, with := newValue(text, done, m)
			out.WriteString(text[done:begin])
			out.WriteString(with)
			done = begin + length
		}
		text = out.String() + text[done:]
	}
	return text
}

// before is what stands before a value.
type before struct {
	// quote is that of the name. It is open if it ends behind the value, as in 'Cookie: x'.
	quote string
	open  bool
	// whole means that the value ends with the line, query that it ends before the next parameter.
	whole, query bool
	// colon means that the value may be in the lines below; line is the line of the name up to it.
	colon bool
	line  string
}

// newValue returns how long a value is, and what to write for it.
func newValue(text string, done int, m []int) (int, string) {
	group := func(i int) string {
		if m[2*i] < 0 {
			return ""
		}
		return text[done+m[2*i] : done+m[2*i+1]]
	}
	rest := text[done+m[1]:]
	b := before{quote: group(1), line: text[strings.LastIndexByte(text[:done+m[0]], '\n')+1 : done+m[0]]}
	if len(m) == 6 { // a variable
		b.open, b.whole, b.colon = group(1) != "" && group(2) == "", true, rest != "" && strings.Contains("|>", rest[:1])
		return value(rest, b)
	}
	name, closed, separator := strings.ToLower(group(3)), group(4), group(5)
	phrase := strings.HasSuffix(name, "password") || strings.HasSuffix(name, "passwd") || strings.HasSuffix(name, "passphrase")
	assigned := separator == "=" && (stamped.ReplaceAllString(b.line, "") == "" || strings.HasSuffix(b.line, "export "))
	b.open, b.colon = b.quote != "" && closed == "", separator == ":"
	b.whole = group(2) != "" || assigned || phrase && b.colon && closed == ""
	b.query = strings.HasSuffix(b.line, "?") || strings.HasSuffix(b.line, "&")
	return value(rest, b)
}

func value(rest string, b before) (int, string) {
	closed := b.quote != "" && !b.open
	mark := Mark
	if closed {
		mark = b.quote + Mark + b.quote
	}
	switch quote := opening.FindString(rest); {
	case stays(rest, mark, closed):
		return 0, ""
	case quote != "" && !(b.open && quote == b.quote):
		return len(quote) + closing(rest[len(quote):], quote), quote + Mark
	case strings.HasPrefix(rest, "["):
		return list(rest), "[" + mark + "]"
	case b.colon && block.MatchString(rest):
		return lines(rest, b)
	case closed && !b.whole:
		return some(len(inJSON.FindString(rest)), mark)
	}
	return some(plain(rest, b), Mark)
}

// stays reports whether a value is no credential, or has been dropped already. What is in an object is judged by its own names.
func stays(rest, mark string, closed bool) bool {
	empty := strings.HasPrefix(rest, "[]") && !strings.HasPrefix(rest, goList)
	object := closed && strings.HasPrefix(rest, "{") || braces.MatchString(rest)
	return empty || object || strings.HasPrefix(rest, Mark) || strings.HasPrefix(rest, "["+mark+"]") || literal.MatchString(rest)
}

// plain returns the length of a value without quotation marks.
func plain(rest string, b before) int {
	end := len(unquoted.FindString(rest))
	if b.whole {
		end = lineLength(rest)
	}
	if b.open {
		end = min(end, closing(rest, b.quote))
	}
	if next := strings.IndexByte(rest[:end], '&'); b.query && next >= 0 {
		end = next
	}
	return end
}

// some writes nothing for nothing.
func some(length int, with string) (int, string) {
	if length == 0 {
		return 0, ""
	}
	return length, with
}

func lineLength(text string) int {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
}

// closing returns where the quotation mark stands that closes a text, or where the line ends if none does. In JSON within JSON, a
// mark of n backslashes is closed by one of n, and one within the text has 2n+1; backslashes of the text itself stand before those.
func closing(text, quote string) int {
	n := len(quote) - 1
	for i, backslashes := 0, 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			backslashes++
			continue
		case text[i] == quote[n] && (backslashes < n || backslashes%(2*n+2) == n):
			return i - min(n, backslashes)
		}
		backslashes = 0
	}
	return lineLength(text)
}

// goList is how Go prints a list of strings.
const goList = "[]string{"

// list returns the length of a list: of quoted values, as in JSON, or of others, as Go prints them.
func list(text string) int {
	for i := 1; i < len(text); i++ {
		quote := opening.FindString(text[i:])
		switch {
		case quote != "":
			i += len(quote)
			i += closing(text[i:], quote)
			i += max(0, len(opening.FindString(text[min(i, len(text)):]))-1)
		case text[i] == ']' && i == 1 && strings.HasPrefix(text, goList):
			return min(len(text), i+1+strings.IndexByte(text[i:]+"}", '}'))
		case text[i] == ']':
			return i + 1
		}
	}
	return lineLength(text)
}

// lines is a value in the lines below: those that are indented further than the name, or the first word there.
func lines(rest string, b before) (int, string) {
	begin := len(block.FindString(rest))
	indent := func(line string) int {
		return len(line) - len(strings.TrimLeft(line, " \t-"))
	}
	named, end := indent(stamped.ReplaceAllString(b.line, "")), begin
	for end < len(rest) {
		line := rest[end : end+lineLength(rest[end:])]
		if own := stamped.ReplaceAllString(line, ""); strings.TrimSpace(own) != "" && indent(own) <= named {
			break
		}
		end = min(len(rest), end+len(line)+1)
	}
	if end == begin {
		begin += len(stamped.FindString(rest[begin:]))
		end = begin + len(unquoted.FindString(rest[begin:]))
	}
	if end == begin {
		return 0, ""
	}
	kept := rest[:begin]
	if strings.HasSuffix(rest[:end], "\n") {
		return end, kept + Mark + "\n"
	}
	return end, kept + Mark
}
