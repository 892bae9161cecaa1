// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestText proves that credentials of every form are taken out of logs and messages, and that what people need to read stays.
func TestText(t *testing.T) {
	const canary = "c4n4ryc4n4ryc4n4ry"
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----"
	for name, text := range map[string]string{
		"private key":                key,
		"private key without an end": "x\n" + key[:50],
		"key in base64":              base64.StdEncoding.EncodeToString([]byte(key)),
		"token":                      "got eyJhbGciOiJSUzI1NiJ9.eyJzdWIi" + canary + ".sig" + canary + " for it",
		"bearer header":              "Authorization: Bearer " + canary,
		"basic header":               `map[Authorization:[Basic ` + canary + `]]`,
		"bearer in a sentence":       "sent bearer " + canary + " to it",
		"cookie":                     "Set-Cookie: session=" + canary + "; Path=/",
		"URL":                        "proxy http://user:" + canary + "@proxy:3128 refused",
		"environment":                "DB_PASSWORD=" + canary,
		"flag":                       "--token=" + canary + " --v=2",
		"quoted flag":                `--client-secret="` + canary + ` b"`,
		"JSON":                       `{"password": "` + canary + `", "a": 1}`,
		"YAML":                       "  client-key-data: " + canary + "\n",
		"query":                      "GET /x?access_token=" + canary + "&b=1",
		"API key":                    "x-api-key: " + canary,
	} {
		if got := Text(text); strings.Contains(got, canary) || !strings.Contains(got, Mark) {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	for _, text := range []string{
		"--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token", "--token-auth-file=/etc/tokens.csv", "dial tcp 10.0.0.1:10250: i/o timeout",
		"https://127.0.0.1:6443/api/v1/nodes?limit=500", "fairlead_tunnel_server_token_reviews_total 3", "--authentication-audience=system:konnectivity-server",
		"TokenReview failed: tokenreviews.authentication.k8s.io is forbidden",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
