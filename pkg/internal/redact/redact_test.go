// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
)

// TestIsSecret proves that credentials are found in every form in which files and objects hold them, and that what belongs
// in a diff stays there.
func TestIsSecret(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n"
	cert := strings.ReplaceAll(key, "PRIVATE KEY", "CERTIFICATE")
	for name, tc := range map[string]struct {
		content string
		want    bool
	}{
		"PKCS 8":                         {key, true},
		"PKCS 1":                         {strings.ReplaceAll(key, "PRIVATE", "RSA PRIVATE"), true},
		"elliptic curve":                 {strings.ReplaceAll(key, "PRIVATE", "EC PRIVATE"), true},
		"encrypted":                      {strings.ReplaceAll(key, "PRIVATE", "ENCRYPTED PRIVATE"), true},
		"OpenSSH":                        {strings.ReplaceAll(key, "PRIVATE", "OPENSSH PRIVATE"), true},
		"behind a certificate":           {cert + key, true},
		"indented, in a ConfigMap":       {"data:\n  tls: |\n    " + strings.ReplaceAll(key, "\n", "\n    "), true},
		"truncated":                      {key[:40], true},
		"in base64":                      {"data: {a: " + base64.StdEncoding.EncodeToString([]byte(cert+key)) + "}", true},
		"in base64, behind a new line":   {"keyData: " + base64.StdEncoding.EncodeToString([]byte("\n"+key)), true},
		"in base64, behind attributes":   {base64.StdEncoding.EncodeToString([]byte("Bag Attributes\n    friendlyName: a\n" + key)), true},
		"in base64, in lines":            {"a:\n  " + inLines(base64.StdEncoding.EncodeToString([]byte("Bag Attributes: of a certificate\n"+key)), "\n  "), true},
		"in base64, twice":               {base64.StdEncoding.EncodeToString([]byte("client-key: " + base64.StdEncoding.EncodeToString([]byte("\n"+key)))), true},
		"in base64 for URLs":             {base64.URLEncoding.EncodeToString([]byte("???>>>" + key)), true},
		"in base64, without PEM":         {"k: " + base64.StdEncoding.EncodeToString(derKey(t)), true},
		"kubeconfig in base64":           {base64.StdEncoding.EncodeToString([]byte("users:\n- name: a\n  user:\n    token: abc\n")), true},
		"kubeconfig in JSON in JSON":     {`{"a":"{\"token\":\"abc\"}"}`, true},
		"key of a TLS configuration":     {`{"tlsConfig":{"keyData":"Ci0t"}}`, true},
		"certificate behind attributes":  {base64.StdEncoding.EncodeToString([]byte("Bag Attributes\n" + cert)), false},
		"kubeconfig with a key":          {"users:\n- name: a\n  user:\n    client-key-data: LS0\n", true},
		"kubeconfig with a token":        {"users:\n- name: a\n  user:\n    token: abc\n", true},
		"kubeconfig in JSON":             {`{"users":[{"name":"a","user":{"token":"abc"}}]}`, true},
		"kubeconfig in flow style":       {"users: [{name: a, user: {token: abc}}]", true},
		"kubeconfig with a password":     {"  user:\n    password: abc\n", true},
		"certificate":                    {cert, false},
		"certificate in base64":          {base64.StdEncoding.EncodeToString([]byte(cert)), false},
		"public key":                     {strings.ReplaceAll(key, "PRIVATE", "PUBLIC"), false},
		"kubeconfig that names files":    {"  user:\n    client-key: /a/key.pem\n    tokenFile: /a/token\n", false},
		"flags and projected volumes":    {"- --tls-private-key-file=/a.key\n- serviceAccountToken:\n    path: token\n", false},
		"a volume whose name is a token": {"- name: konnectivity-agent-token\n  mountPath: /var/run/secrets/tokens\n", false},
		"empty":                          {"", false},
	} {
		if got := IsSecret([]byte(tc.content)); got != tc.want {
			t.Errorf("%s: secret: %v, want %v", name, got, tc.want)
		}
	}
}

// inLines breaks text after each 32 characters.
func inLines(text, end string) string {
	var lines []string
	for ; len(text) > 32; text = text[32:] {
		lines = append(lines, text[:32])
	}
	return strings.Join(append(lines, text), end)
}

// derKey is a private key without the lines of PEM.
func derKey(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
