// SPDX-License-Identifier: Apache-2.0

package redact

import "regexp"

// Mark stands where a credential was.
const Mark = "[redacted]"

var (
	// pemBlock is a private key with its body, also without an end.
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----.*?(-----END ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----|$)`)
	// pemEnd is a private key whose first line is not in the text, since only the end of a log is read. Where the key begins is unknown.
	pemEnd = regexp.MustCompile(`(?s)^.*-----END ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----`)
	// replacements keep what names a credential, and drop the credential.
	replacements = []struct {
		find *regexp.Regexp
		with string
	}{
		// JSON Web Tokens, such as those of ServiceAccounts, with or without a signature.
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`), Mark},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + Mark},
		{regexp.MustCompile(`\b(Negotiate|NTLM)\s+[A-Za-z0-9+/]{16,}={0,2}`), "$1 " + Mark},
		// User information in URLs, and in names of data sources.
		{regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/"']+@`), "${1}" + Mark + "@"},
		{regexp.MustCompile(`[^\s"'=@]+:[^\s"'@]+@(tcp|unix)\(`), Mark + "@$1("},
		// Flags with a value of their own, and elements of XML.
		{regexp.MustCompile(`(?im)((?:^|[\s\["'])--?` + credentialWords + `[ \t]+)[^\s-]\S*`), "${1}" + Mark},
		{regexp.MustCompile(`(?i)(\\*["']--?` + credentialWords + `\\*["']\s*,\s*\\*["'])[^"'\\]+`), "${1}" + Mark},
		{regexp.MustCompile(`(?i)(<` + credentialWords + `>)[^<]+`), "${1}" + Mark},
	}
)

// Text returns the text without what looks like a credential: private keys, tokens, the values of headers, flags and fields that are named like
// one, and user information in URLs, also in base64. It is for logs and messages, which may quote anything, and errs on the safe side.
func Text(text string) string {
	text = pemBlock.ReplaceAllString(text, Mark)
	text = pemEnd.ReplaceAllString(text, Mark)
	text = encodedText(text)
	text = settings(text)
	for _, r := range replacements {
		text = r.find.ReplaceAllString(text, r.with)
	}
	return prose(text)
}
