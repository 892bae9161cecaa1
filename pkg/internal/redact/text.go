// SPDX-License-Identifier: Apache-2.0

package redact

import "regexp"

// Mark stands where a credential was.
const Mark = "[redacted]"

var (
	// pemBlock is a private key with its body, also without an end.
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----.*?(-----END ([A-Z0-9]+ )*PRIVATE KEY-----|$)`)
	// replacements keep what names a credential, and drop the credential.
	replacements = []struct {
		find *regexp.Regexp
		with string
	}{
		// JSON Web Tokens, such as those of ServiceAccounts, with or without a signature.
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`), Mark},
		// The values of headers.
		{regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*\[?["']?)(?:(?:bearer|basic|digest|negotiate)\s+)?[^\s"',\]]+`), "${1}" + Mark},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + Mark},
		{regexp.MustCompile(`(?i)\b(set-cookie|cookie)(["']?\s*[:=]\s*)[^\n]+`), "$1$2" + Mark},
		// User information in URLs.
		{regexp.MustCompile(`\b([a-z][a-z0-9+.-]*://)[^\s/@"']+@`), "${1}" + Mark + "@"},
		// Settings, flags and fields whose name says that they are credentials.
		{regexp.MustCompile(`(?i)(["']?[a-z0-9_.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client-key-data|credentials?)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s"',;&}\]]+)`), "${1}" + Mark},
		// Keys of well-known services.
		{regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bxox[abp]-[A-Za-z0-9-]{10,}\b|\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Mark},
	}
)

// Text returns the text without what looks like a credential: private keys, tokens, the values of headers, flags and fields that are named like
// one, and user information in URLs. It is for logs and messages, which may quote anything, and errs on the safe side.
func Text(text string) string {
	text = pemBlock.ReplaceAllString(text, Mark)
	text = encodedPEM.ReplaceAllStringFunc(text, func(found string) string {
		if IsSecret([]byte(found)) || len(found) < 64 {
			return Mark
		}
		return found
	})
	for _, r := range replacements {
		text = r.find.ReplaceAllString(text, r.with)
	}
	return text
}
