// SPDX-License-Identifier: Apache-2.0

// Package redact decides what must not be printed: diffs, logs and JSON end up in tickets and in the logs of CI systems.
package redact

import (
	"regexp"
	"slices"
)

var (
	// privateKey is the first line of every kind of private key in PEM, also of an encrypted, indented or truncated one.
	privateKey = regexp.MustCompile(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----`)
	// credential is a field of a kubeconfig or of a client's TLS configuration that holds a credential, in YAML or JSON, in block or flow
	// style, also in JSON that is quoted.
	credential = regexp.MustCompile(`(?m)(^|[\s{,"'-])(client-key-data|keyData|token|password)(\\*["'])?\s*:[ \t]*[^\s#]`)
)

// IsSecret reports whether content holds a credential: a private key in PEM, as text or in base64, or a kubeconfig's
// client-key-data, token or password. It goes by the content alone, because keys have names of every kind.
func IsSecret(content []byte) bool {
	if privateKey.Match(content) || credential.Match(content) {
		return true
	}
	for _, run := range encoded.FindAllString(string(content), -1) {
		all, key := decode(run)
		if key || slices.ContainsFunc(all, func(data []byte) bool { return isKey(data) || IsSecret([]byte(readable(data))) }) {
			return true
		}
	}
	return false
}
