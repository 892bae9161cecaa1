// SPDX-License-Identifier: Apache-2.0

// Package redact decides what must not be printed: diffs, logs and JSON end up in tickets and in the logs of CI systems.
package redact

import (
	"encoding/base64"
	"regexp"
)

var (
	// privateKey is the first line of every kind of private key in PEM, also of an encrypted, indented or truncated one.
	privateKey = regexp.MustCompile(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----`)
	// credential is a field of a kubeconfig that holds a credential, in YAML or JSON, in block or flow style.
	credential = regexp.MustCompile(`(?m)(^|[\s{,"'-])(client-key-data|token|password)["']?\s*:[ \t]*[^\s#]`)
	// encodedPEM is PEM in base64, as in the fields *-data of a kubeconfig and in a Secret.
	encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]*`)
)

// IsSecret reports whether content holds a credential: a private key in PEM, as text or in base64, or a kubeconfig's
// client-key-data, token or password. It goes by the content alone, because keys have names of every kind.
func IsSecret(content []byte) bool {
	if privateKey.Match(content) || credential.Match(content) {
		return true
	}
	for _, encoded := range encodedPEM.FindAll(content, -1) {
		encoded = encoded[:len(encoded)/4*4]
		decoded := make([]byte, base64.StdEncoding.DecodedLen(len(encoded)))
		if n, err := base64.StdEncoding.Decode(decoded, encoded); err == nil && privateKey.Match(decoded[:n]) {
			return true
		}
	}
	return false
}
